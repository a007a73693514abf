"""What the shell's Tab key offers: runs, tables, metrics. Says nothing where there is no database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rla_client.errors import RlaError

if TYPE_CHECKING:
    from rla_client.database.records import Record
    from rla_client.database.runs import Database

MAX_OFFERED = 100  # newest runs; more is no help on a screen
TIME_PLACE = len("2026/11/21/")


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """`@last`, dates, and times of the day, of the newest runs."""
    offered = ["@last"]
    for record in reversed(_newest(ctx, light=True)):
        offered += [record.date, record.date[TIME_PLACE:]]
    return [name for name in offered if name.startswith(incomplete)]


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Task tables."""
    database = _database(ctx)
    return [name for name in (database.tables() if database else []) if name.startswith(incomplete)]


def complete_tag(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tags of the newest runs."""
    tags = {tag for record in _newest(ctx, light=True) for tag in record.tags}
    return sorted(tag for tag in tags if tag.startswith(incomplete))


def complete_state(incomplete: str) -> list[str]:
    """States that runs have."""
    from rla_client.database.records import STATES

    return [state for state in STATES if state.startswith(incomplete)]


def complete_metric(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns that the newest run has."""
    return [
        name for record in _newest(ctx, limit=1) for name in record.metrics if name.startswith(incomplete)
    ]


def _newest(ctx: typer.Context, *, limit: int = MAX_OFFERED, light: bool = False) -> list[Record]:
    """The newest runs, oldest first; none where there is no database, or it cannot be read."""
    database = _database(ctx)
    try:
        return database.records(limit=limit, light=light) if database is not None else []
    except (RlaError, OSError):
        return []


def _database(ctx: typer.Context) -> Database | None:
    from rla_client.database.cli_options import find_data_root
    from rla_client.database.runs import Database

    given = ctx.params.get("data_root")
    try:
        return Database(given if given is not None else find_data_root(Path.cwd()))
    except (RlaError, OSError):
        return None
