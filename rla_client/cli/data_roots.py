"""Repeatable option `--data-root` of a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.open_database import open_database

DataRoots = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-root",
        "-d",
        envvar="RLA_DATA_ROOT",
        help="A database: the folder that holds log/ (repeatable).",
    ),
]


def existing_roots(given: list[Path] | None) -> list[Path]:
    """The given databases; else the one found from the working folder."""
    return [open_database(root).data_root for root in (given or (None,))]
