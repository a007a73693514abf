"""`rla du`: disk use of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsCsv, AsJson, DataRoot
from rla_client.cli.output import print_rows, say_aside
from rla_client.cli.registration import CHECK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.database.text.numbers import bytes_text

if TYPE_CHECKING:
    from rla_client.database.database import Database


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, du, CHECK, "rla du", "rla du --table cartpole --json")


@takes_runs()
def du(
    *, chosen: Selection, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """Show disk use by table and kind, with archive and trash; pruned files are counted separately.

    Of chosen runs alone where RUN or an option says which.
    """
    from rla_client.database.disk_use import disk_use

    database = open_database(data_root)
    rows = disk_use(database.data_root, _with_chains(database, chosen) if chosen.given else None)
    names = ["table", "kind", "items", "size", "on the master alone"]
    if not (as_json or as_csv):
        every = len(rows)
        rows = [row for row in rows if row[3] or row[4]]
        total = ("total", "", "", sum(row[3] for row in rows), sum(row[4] for row in rows))
        shown = [
            [*row[:3], bytes_text(row[3]), bytes_text(row[4]) if row[4] else ""] for row in (*rows, total)
        ]
        shown = shown if total[4] else [row[:4] for row in shown]
        print_rows(names[: len(shown[0])], shown, as_json=False, as_csv=False)
        if every > len(rows):
            say_aside(f"({every - len(rows)} more without a byte; --json has all)")
        return
    print_rows(names, rows, as_json=as_json, as_csv=as_csv)


def _with_chains(database: Database, chosen: Selection) -> set[tuple[str, str]]:
    """The chosen runs, and all earlier items of their chains."""
    runs = {(one.table, one.index) for one in chosen.records(database)}
    links = database.links()
    earlier = runs
    while earlier := {(run[0], links[run]) for run in earlier if run in links} - runs:
        runs |= earlier
    return runs
