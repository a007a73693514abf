"""What the shell's Tab key offers: runs, tables, metrics. Says nothing where there is no database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rla_client.errors import RlaError

if TYPE_CHECKING:
    from rla_client.database.runs import Database

MAX_OFFERED = 100  # newest runs; more is no help on a screen
TIME_PLACE = len("2026/11/21/")


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """`@last`, dates, and times of the day, of the newest runs."""
    database = _database(ctx)
    offered = ["@last"]
    try:
        records = database.records(limit=MAX_OFFERED, light=True) if database is not None else []
    except (RlaError, OSError):
        records = []
    for record in reversed(records):
        offered += [record.date, record.date[TIME_PLACE:]]
    return [name for name in offered if name.startswith(incomplete)]


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Task tables."""
    database = _database(ctx)
    return [name for name in (database.tables() if database else []) if name.startswith(incomplete)]


def complete_metric(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns that the newest run has."""
    database = _database(ctx)
    try:
        newest = database.records(limit=1) if database is not None else []
    except (RlaError, OSError):
        newest = []
    return [name for record in newest for name in record.metrics if name.startswith(incomplete)]


def _database(ctx: typer.Context) -> Database | None:
    from rla_client.database.cli_options import find_data_root
    from rla_client.database.runs import Database

    given = ctx.params.get("data_root")
    try:
        return Database(given if given is not None else find_data_root(Path.cwd()))
    except (RlaError, OSError):
        return None
