"""Shell completion of names.

Completions are printed quickly or not at all: a database that cannot be read, or takes too long (see
`app`), gives none. The catalogue keeps the runs read so far, so that a later attempt succeeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rla_client.contract.errors import RlaError
from rla_client.database.tree.data_root import find_data_root

if TYPE_CHECKING:
    from rla_client.database.database import Database
    from rla_client.database.records.record import Record


MAX_OFFERED = 100  # newest runs to offer
MAX_ASKED = 1000  # newest runs to read parameters from
SHORT_COMMIT = 10  # digits
TIME_PLACE = len("2026/11/21/")
_SHOWN = (
    "table",
    "state",
    "step",
    "took",
    "began",
    "host",
    "name",
    "tags",
    "note",
    "kinds",
    "metric",
    "value",
    "commit",
    "reason",
    "lost",
)
_LAST_NAME = re.compile(r"[\w./-]*$")
names_wanted: list[str] = []  # not empty after a completion of names: the shell must not offer files then


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """`@last`, and dates, times, display names and tracked parameters such as `seed=1` of the newest runs."""
    if "=" not in incomplete:
        offered = ["@last"]
        for record in reversed(_newest(ctx, light=True)):
            offered += [record.date, record.date[TIME_PLACE:], *filter(None, [record.display_name])]
        found = _matching(offered, incomplete)
        if found or not incomplete:
            return found
    before, mark, _ = incomplete.rpartition("&")
    pairs = [
        f"{before}{mark}{name}={value}"
        for record in reversed(_newest(ctx, limit=MAX_ASKED, light=True))
        if all(f"&{part}&" in f"{record.index}&" for part in before.split("&") if part)
        for name, value in record.tracked.items()
    ]
    return _matching(sorted(pairs, key=lambda pair: (len(pair), pair)), incomplete)


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Task tables."""
    database = _database(ctx)
    return _matching(database.tables() if database else [], incomplete)


def complete_tag(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tags of the newest runs."""
    return _matching(sorted(tag for record in _newest(ctx, light=True) for tag in record.tags), incomplete)


def complete_commit(ctx: typer.Context, incomplete: str) -> list[str]:
    """Abbreviated commits of the newest runs."""
    commits = [str(record.told.get("commit", ""))[:SHORT_COMMIT] for record in reversed(_newest(ctx))]
    return _matching(filter(None, commits), incomplete)


def complete_state(incomplete: str) -> list[str]:
    """States of runs."""
    from rla_client.database.records.record import STATES

    return _matching(STATES, incomplete)


def complete_metric(ctx: typer.Context, incomplete: str) -> list[str]:
    """Metrics of the newest run."""
    return _matching((name for record in _newest(ctx, limit=1) for name in record.metrics), incomplete)


def complete_parameters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Hyper-parameters of the newest runs, for a list separated by commas."""
    return _behind_comma(incomplete, _parameters(ctx))


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns of a list of runs, for a list separated by commas."""
    return _behind_comma(incomplete, _columns(ctx))


def complete_where(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names in a filter, appended to its beginning."""
    word = _LAST_NAME.search(incomplete)
    before = incomplete[: word.start()] if word else incomplete
    return _matching((f"{before}{name}" for name in _columns(ctx)), incomplete)


def complete_sort(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns to sort by; after a `-` typer completes options."""
    return _matching(_columns(ctx), incomplete)


def _parameters(ctx: typer.Context) -> list[str]:
    return [name for record in reversed(_newest(ctx)) for name in record.hyper.flat()]


def _columns(ctx: typer.Context) -> list[str]:
    metrics = (name for record in _newest(ctx, limit=1) for name in record.metrics)
    return [*_parameters(ctx), *metrics, *_SHOWN]


def _behind_comma(incomplete: str, names: Iterable[str]) -> list[str]:
    before, mark, _ = incomplete.rpartition(",")
    return _matching((f"{before}{mark}{name}" for name in names), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    """Distinct names that start with the typed text."""
    names_wanted.append(incomplete)
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _newest(ctx: typer.Context, *, limit: int = MAX_OFFERED, light: bool = False) -> list[Record]:
    """The newest runs, oldest first; empty without a readable database."""
    database = _database(ctx)
    try:
        return database.records(limit=limit, light=light) if database is not None else []
    except (RlaError, OSError):
        return []


def _database(ctx: typer.Context) -> Database | None:
    from rla_client.database.database import Database

    given = ctx.params.get("data_root")
    try:
        return Database(given if given is not None else find_data_root(Path.cwd()))
    except (RlaError, OSError):
        return None
