"""`rla top`: dashboard in a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import DataRoot
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import ArgumentError, extra

if TYPE_CHECKING:
    from rla_client.database.records.record import Record


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, top, LOOK, "rla top", "rla top --data-root data")


@takes_runs()
def top(*, chosen: Selection, data_root: DataRoot = None) -> None:
    """Show runs, curves, logs and machines in this terminal, live; `?` lists the keys."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ArgumentError("rla top needs a terminal\nhint: rla ls prints the runs once")
    database = open_database(data_root)
    database.progress = None  # progress would be written into the screen
    with extra("top", "rla top"):
        from rla_client.top.app import TopApp
        from rla_client.top.runs_on_screen import MAX_SHOWN, RunsOnScreen

    def look(where: str | None) -> list[Record]:
        if where is None and not chosen.given:
            return database.records(limit=MAX_SHOWN)
        both = [f"({text})" for text in (chosen.where, where) if text]
        return replace(chosen, where=" and ".join(both) or None).records(database)

    look(None)  # errors in the options are printed before the screen changes
    TopApp(RunsOnScreen(database.data_root, look)).run()
