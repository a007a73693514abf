"""Count, last value, range of each metric of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.database.curves.chain_curves import chain_names, read_chain
from rla_client.database.curves.progress_csv import PROGRESS_FILE, read_numbers, warn_broken
from rla_client.database.curves.rank_tables import (
    OF_RANKS,
    Ranks,
    RankShare,
    check_rank,
    names_of_ranks,
    rank_share,
)
from rla_client.database.curves.stream_tables import roles_of, table_of, with_role
from rla_client.database.records.likely_metric import CLOCKS
from rla_client.database.records.record import Record
from rla_client.database.tree.chains import chain_of


class Rooted(Protocol):
    """Anything with a data root, such as a `Database`."""

    data_root: Path


@dataclass(slots=True)
class MetricSummary:
    """Summary of one metric over runs.

    Attributes:
        runs: number of runs that have it.
        rows: number of rows with a number.
        last: its last value in the newest run that has it.
        low: smallest finite number, None if there is none.
        high: largest finite number, None if there is none.
        share: of a mean of ranks, the number of ranks in it.
    """

    runs: int = 0
    rows: int = 0
    last: object = None
    low: float | None = None
    high: float | None = None
    share: RankShare | None = None


def summaries(
    database: Rooted, records: Sequence[Record], ranks: Ranks | None = None
) -> dict[str, MetricSummary]:
    """Summary of each metric of runs, in the order of the files' columns.

    A run with a broken table is left out, with a warning.

    Args:
        database: database of the runs.
        records: the runs, oldest first.
        ranks: ranks to read, see `parse_ranks`.

    Raises:
        UnknownNameError: no run has the rank.
    """
    check_rank(database.data_root, [(record.table, record.index) for record in records], ranks)
    found: dict[str, MetricSummary] = {}
    of_ranks = ranks is not None and ranks != "all"
    for record, columns, shares in _tables(database, records, ranks):
        for name, numbers in columns.items():
            one = found.setdefault(name, MetricSummary())
            one.runs += 1
            one.rows += len(numbers)
            last = numbers[-1] if numbers else one.last
            one.last = last if of_ranks else record.metrics.get(name, last)
            if name in shares:
                one.share = shares[name] if one.share is None else one.share + shares[name]
            finite = [value for value in numbers if math.isfinite(value)]
            one.low = min([*finite, *([] if one.low is None else [one.low])], default=None)
            one.high = max([*finite, *([] if one.high is None else [one.high])], default=None)
    return found


def _tables(
    database: Rooted, records: Sequence[Record], ranks: Ranks | None
) -> Iterator[tuple[Record, dict[str, list[float]], dict[str, RankShare]]]:
    for record in records:
        try:
            columns, shares = _numbers(database, record, ranks)
        except FileNotFoundError:
            continue
        except (DatabaseError, OSError) as error:
            warn_broken(error)
            continue
        yield record, {name: column for name, column in columns.items() if name not in CLOCKS}, shares


def _numbers(
    database: Rooted, record: Record, ranks: Ranks | None
) -> tuple[dict[str, list[float]], dict[str, RankShare]]:
    """Numbers of each metric, and for a mean of ranks the number of ranks in it."""
    table = f"{database.data_root}/{LOG}/{record.table}"
    if not record.parent and (ranks is None or ranks == "all"):
        return _numbers_of_streams(f"{table}/{record.index}"), {}
    chain = chain_of(database.data_root, record.table, record.index)
    names = names_of_ranks(chain_names(chain, table), ranks)
    counts = [f"{name}{OF_RANKS}" for name in ("", *names)] if ranks == "mean" else []
    columns = read_chain(chain, table, [*names, *counts], ranks)
    numbers = {name: columns[name] for name in names if name in columns}
    shares = {
        name: share
        for name in numbers
        if f"{name}{OF_RANKS}" in columns
        and (share := rank_share(columns[f"{name}{OF_RANKS}"], columns[OF_RANKS])) is not None
    }
    return {name: column[column == column].tolist() for name, column in numbers.items()}, shares  # noqa: PLR0124 - NaN


def _numbers_of_streams(folder: str) -> dict[str, list[float]]:
    path, roles = f"{folder}/{PROGRESS_FILE}", roles_of(folder)
    try:
        found = read_numbers(path)
    except FileNotFoundError:
        if not roles:
            raise
        found = {}
    for role in roles:
        with suppress(FileNotFoundError):
            numbers = read_numbers(table_of(path, role))
            found |= {with_role(name, role): column for name, column in numbers.items() if name not in CLOCKS}
    return found
