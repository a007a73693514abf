"""`rla trash`: trash of a database."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rla_client.cli.confirmation import agree
from rla_client.cli.open_database import held, open_database
from rla_client.cli.options import AsCsv, AsJson, DataRoot, Yes
from rla_client.cli.output import print_done, print_rows, say, teller
from rla_client.cli.registration import CHANGE, add_command
from rla_client.contract.text.command_line import examples
from rla_client.database.clock import clock
from rla_client.database.text.numbers import bytes_text
from rla_client.database.text.text_tables import table_text


def register(app: typer.Typer) -> None:
    """Add the command."""
    bin_app = typer.Typer(help="The trash: list (default), restore, empty.", invoke_without_command=True)
    bin_app.callback()(trash)
    add_command(bin_app, list_, None, "rla trash list", "rla trash list --json", name="list")
    add_command(bin_app, restore, None, "rla trash restore 09-30-01", "rla trash restore 'lr=0.1&seed=3'")
    add_command(bin_app, empty, None, "rla trash empty", "rla trash empty --yes")
    whole = examples("rla trash", "rla trash restore 09-30-01")
    app.add_typer(bin_app, name="trash", rich_help_panel=CHANGE, epilog=whole)


def trash(
    context: typer.Context, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """List what can be restored."""
    if context.invoked_subcommand is None:
        list_(data_root, as_json, as_csv)


def list_(data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List what can be restored."""
    from rla_client.database.changes.trash import TRASH_DAYS
    from rla_client.database.changes.trashed_runs import trashed

    found = trashed(open_database(data_root).data_root)
    machine = as_json or as_csv
    rows: list[list[object]] = []
    for one in found:
        entry, moves = one.entry, one.entry.moves
        until = time.strftime("%Y-%m-%d", time.localtime(entry.created + TRASH_DAYS * 86400))
        tables = " ".join(dict.fromkeys(table for table, _ in one.runs))
        if machine:
            first = moves[0][0] if moves else None
            rows.append([one.title, entry.name, len(moves), entry.bytes, until, tables, first])
        else:
            rows.append([one.title, entry.name, bytes_text(entry.bytes), until, one.what, tables])
    if machine:
        names = ["run", "entry", "paths", "size", "kept until", "table", "first"]
        print_rows(names, rows, as_json=as_json, as_csv=as_csv)
    elif rows:
        say(table_text(["run", "entry", "size", "kept until", "what", "table"], rows))
    else:
        say("the trash is empty")


def restore(
    entry: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_ENTRY", help="A run in the trash (a unique part of its name), or a whole entry."
        ),
    ],
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Move a run, or a whole entry, back to where it was."""
    from rla_client.database.changes.trashed_runs import restore as restore_one

    root = open_database(data_root).data_root
    with held(root):
        count = restore_one(root, entry)
    print_done({"paths": count}, f"restored {count} path(s)", as_json=as_json)


def empty(yes: Yes = False, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Delete everything in the trash for good."""
    from rla_client.database.changes.trash import empty_trash, trash_entries

    root = open_database(data_root).data_root
    entries = trash_entries(root)
    if not entries:
        print_done({"entries": 0, "size": 0}, "the trash is empty", as_json=as_json)
        return
    teller(as_json=as_json)(f"{len(entries)} entries, {bytes_text(sum(entry.bytes for entry in entries))}")
    agree("Delete them for good?", yes)
    with held(root):
        freed = empty_trash(root, clock())
    print_done({"entries": len(entries), "size": freed}, f"freed {bytes_text(freed)}", as_json=as_json)
