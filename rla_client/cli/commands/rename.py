"""`rla rename`: display name of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from rla_client.cli.completion import complete_run
from rla_client.cli.open_database import held, open_database
from rla_client.cli.options import AsJson, DataRoot, TableOption
from rla_client.cli.output import print_done
from rla_client.cli.registration import CHANGE, add_command


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, rename, CHANGE, "rla rename @last 'new reward'", "rla rename seed=3 ''")


def rename(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Index, a unique part of it, its present name, or @last.",
            autocompletion=complete_run,
        ),
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new name; an empty one takes the name away.")
    ],
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Give a run a display name; its folders keep theirs."""
    from rla_client.database.records.notes import change_note

    database = open_database(data_root)
    record = database.find(run, table).record
    with held(database.data_root):
        content = change_note(database.data_root, record, display_name=name)
    shown = str(content["display_name"])
    facts = {"run": record.index, "table": record.table, "display_name": shown}
    print_done(facts, f"{record.date}: {shown or 'no display name'}", as_json=as_json)
