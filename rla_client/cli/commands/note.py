"""`rla note`: note of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from rla_client.cli.completion import complete_run
from rla_client.cli.open_database import held, open_database
from rla_client.cli.options import AsJson, DataRoot
from rla_client.cli.output import print_rows, say
from rla_client.cli.registration import CHANGE, add_command
from rla_client.cli.run_argument import run_first
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import ArgumentError


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, note, CHANGE, "rla note @last", "rla note @last 'first run with the new reward'")


@takes_runs(argument=False)
def note(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN [TEXT]",
            help="A run and its new note; without a note, the present one is printed.",
            autocompletion=complete_run,
        ),
    ] = None,
    *,
    chosen: Selection,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print or set the note of runs."""
    from rla_client.database.records.notes import change_note

    database = open_database(data_root)
    records, texts = run_first(database, chosen, words or [])
    if len(texts) > 1:
        raise ArgumentError("a note is one text\nhint: put it in quotes")
    if texts:
        with held(database.data_root):
            for record in records:
                change_note(database.data_root, record, note=texts[0])
                if not as_json:
                    say(f"{record.date}: noted")
    if as_json:
        rows = [[record.index, record.table, texts[0] if texts else record.note] for record in records]
        print_rows(["run", "table", "note"], rows, as_json=True, as_csv=False)
    elif not texts:
        for record in records:
            say(
                f"{record.date}: {record.note}"
                if len(records) > 1 and record.note
                else record.note or f"{record.date} has no note"
            )
