"""`rla tag`: tags of runs."""

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
from rla_client.database.text.tag_text import tags_text


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, tag, CHANGE, "rla tag @last best", "rla tag --where 'lr == 0.1' baseline")


@takes_runs(argument=False)
def tag(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN TAG...",
            help="A run, then tags, quoted where they hold spaces; only tags with --run or a filter.",
            autocompletion=complete_run,
        ),
    ],
    *,
    chosen: Selection,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tags instead.")] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Add tags to runs, or remove them."""
    from rla_client.database.records.notes import change_note

    database = open_database(data_root)
    records, tags = run_first(database, chosen, words)
    if not tags:
        raise ArgumentError("no tag is given\nhint: rla tag RUN TAG...")
    add, away = ([], tags) if remove else (tags, [])
    rows = []
    with held(database.data_root):
        for record in records:
            listed = change_note(database.data_root, record, add=add, remove=away)["tags"]
            texts = list(map(str, listed)) if isinstance(listed, list) else []
            rows.append([record.index, record.table, texts])
            if not as_json:
                say(f"{record.date}: {tags_text(texts) or 'no tags'}")
    if as_json:
        print_rows(["run", "table", "tags"], rows, as_json=True, as_csv=False)
