"""`rla top`: the dashboard in a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from rla_client.cli.options import LOOK, DataRoot, Selection, open_database, takes_runs
from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.user_messages import examples

if TYPE_CHECKING:
    from rla_client.database.records import Record


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=LOOK, epilog=examples("rla top", "rla top --data-root data"))(top)


@takes_runs()
def top(*, chosen: Selection, data_root: DataRoot = None) -> None:
    """Show runs, curves, logs and machines in this terminal, live; `?` lists the keys."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "rla top needs a terminal\nhint: rla ls prints the runs once"
        raise ArgumentError(message)
    database = open_database(data_root)
    database.progress = None  # it would write into the screen
    with extra("top", "rla top"):
        from rla_client.top.app import TopApp
        from rla_client.top.source import MAX_SHOWN, Source

    def look(where: str | None) -> list[Record]:
        if where is None and not chosen.given:
            return database.records(limit=MAX_SHOWN)
        both = [f"({text})" for text in (chosen.where, where) if text]
        return replace(chosen, where=" and ".join(both) or None).records(database)

    look(None)  # a fault in the options is told before the screen changes
    TopApp(Source(database.data_root, look)).run()
