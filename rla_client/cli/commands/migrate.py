"""`rla migrate`: runs copied to another table."""

from __future__ import annotations

from typing import Annotated

import typer

from rla_client.cli.chosen_items import Kinds
from rla_client.cli.copied_runs import copy_runs
from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, DataRoot, Yes
from rla_client.cli.registration import CHANGE, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.safe_names import check_table_name


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla migrate baselines --tag best", "rla migrate old --table cartpole --since 7d")
    add_command(app, migrate, CHANGE, *lines)


@takes_runs()
def migrate(
    target: Annotated[str, typer.Argument(metavar="TO_TABLE", help="The table that gets the copies.")],
    *,
    chosen: Selection,
    kinds: Kinds = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs to another table of the database."""
    database = open_database(data_root)
    escaped = check_table_name(target).replace("{", "{{").replace("}", "}}")
    copy_runs(database, chosen, kinds, "{kind}/" + escaped, f"table {target}", yes=yes, as_json=as_json)
