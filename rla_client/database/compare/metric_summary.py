"""The summary of each metric of some runs: count, last value, range."""

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
from rla_client.database.curves.stream_tables import roles_of, table_of, with_role
from rla_client.database.records.likely_metric import CLOCKS
from rla_client.database.records.record import Record
from rla_client.database.tree.chains import chain_of


class Rooted(Protocol):
    """Whatever lies in a data root, such as a `Database`."""

    data_root: Path


@dataclass(slots=True)
class Summary:
    """One metric of some runs.

    Attributes:
        runs: that have it.
        rows: with a number.
        last: its last value in the newest run that has it.
        low: least finite number, None where there is none; `high` likewise.
        high: largest.
    """

    runs: int = 0
    rows: int = 0
    last: object = None
    low: float | None = None
    high: float | None = None


def summaries(database: Rooted, records: Sequence[Record]) -> dict[str, Summary]:
    """Each metric of some runs, given oldest first, in the order of the files' columns.

    A run whose table is broken is warned about and left out; one without rows has no metrics.
    """
    found: dict[str, Summary] = {}
    for record, columns in _tables(database, records):
        for name, numbers in columns.items():
            one = found.setdefault(name, Summary())
            one.runs += 1
            one.rows += len(numbers)
            one.last = record.metrics.get(name, numbers[-1] if numbers else one.last)
            finite = [value for value in numbers if math.isfinite(value)]
            one.low = min([*finite, *([] if one.low is None else [one.low])], default=None)
            one.high = max([*finite, *([] if one.high is None else [one.high])], default=None)
    return found


def _tables(database: Rooted, records: Sequence[Record]) -> Iterator[tuple[Record, dict[str, list[float]]]]:
    for record in records:
        try:
            columns = _numbers(database, record)
        except FileNotFoundError:
            continue
        except (DatabaseError, OSError) as error:
            warn_broken(error)
            continue
        yield record, {name: column for name, column in columns.items() if name not in CLOCKS}


def _numbers(database: Rooted, record: Record) -> dict[str, list[float]]:
    table = f"{database.data_root}/{LOG}/{record.table}"
    if not record.parent:
        return _numbers_of_streams(f"{table}/{record.index}")
    chain = chain_of(database.data_root, record.table, record.index)
    columns = read_chain(chain, table, chain_names(chain, table))
    return {name: column[column == column].tolist() for name, column in columns.items()}  # noqa: PLR0124 - NaN


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
