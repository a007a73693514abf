"""Folder argument of commands on `wrap_experiment` runs.

The argument is the run's folder (`data/local/experiment/...`, or an item's log folder), or a RUN of the
database as in the other commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.open_database import open_database
from rla_client.contract.errors import LaunchError, RlaError
from rla_client.contract.layout import LOG

Experiment = Annotated[
    str,
    typer.Argument(
        metavar="DIR_OR_RUN", help="The run's folder, its index, a unique part of that, or @last."
    ),
]


def find_log_dir(reference: str, table: str | None, data_root: Path | None) -> Path:
    """The log folder of a run.

    Raises:
        LaunchError: there is no such folder, and no database.
    """
    folder = Path(reference)
    if folder.is_dir():
        return folder.absolute()
    try:
        database = open_database(data_root)
    except RlaError as error:
        raise LaunchError(f"there is no folder {reference}, and for a run of a database: {error}") from error
    return Path(database.find(reference, table).folder(LOG))
