"""Several runs as one: grouped by parameters, and what their metrics amount to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.database.csv_table import read_numbers
from rla_client.database.curves import warn_broken
from rla_client.database.metrics import CLOCKS
from rla_client.database.records import PROGRESS_FILE, Record
from rla_client.database.rows import ALIASES, FIELDS, RowView
from rla_client.database.runs import Database, Run
from rla_client.database.scanning import parameter_or_metric

SEED = "seed"


@dataclass(slots=True)
class Group:
    """Runs that have the same values of some parameters.

    Attributes:
        values: of these parameters.
        states: state → how many runs are in it.
        numbers: last value of the metric of each run that has it.
        seeds: its hyper-parameter `seed` as text, of these runs; None without one.
    """

    values: tuple[object, ...]
    states: Counter[str] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)
    seeds: list[str | None] = field(default_factory=list)


def group_runs(records: Iterable[Record], by: Sequence[str], metric: str | None, now: float) -> list[Group]:
    """Runs by the values of fields, parameters or metrics, in the order of these; numbers first."""
    found: dict[tuple[tuple[int, float, str], ...], Group] = {}
    for record in records:
        values = tuple(_value(record, name, now) for name in by)
        group = found.setdefault(tuple(map(_order, values)), Group(values))
        group.states[record.shown_state(now) or "not recorded"] += 1
        value = None if metric is None else last_value(record, metric)
        if isinstance(value, int | float):
            group.numbers.append(float(value))
            seed = _value(record, SEED, now)
            group.seeds.append(None if seed is None else str(seed))
    return [found[key] for key in sorted(found)]


def _value(record: Record, name: str, now: float) -> object:
    """A field, parameter or metric; of ten thousand runs no JSON is parsed for a parameter that all have."""
    if name in FIELDS or name in ALIASES:
        return RowView(record, now).get(name)
    return parameter_or_metric(record.hyper_json, record.metrics_json, name)


def last_value(record: Record, metric: str) -> object:
    """The last value of a metric, as `record.metrics` has it; None without one."""
    return parameter_or_metric(None, record.metrics_json, metric)


def _order(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), "")
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


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


def summaries(database: Database, records: Sequence[Record]) -> dict[str, Summary]:
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


def _tables(database: Database, records: Sequence[Record]) -> Iterator[tuple[Record, dict[str, list[float]]]]:
    for record in records:
        try:
            columns = _numbers(database, record)
        except FileNotFoundError:
            continue
        except (DatabaseError, OSError) as error:
            warn_broken(error)
            continue
        yield record, {name: column for name, column in columns.items() if name not in CLOCKS}


def _numbers(database: Database, record: Record) -> dict[str, list[float]]:
    if not record.parent:
        folder = f"{database.data_root}/{LOG}/{record.table}/{record.index}"
        return read_numbers(f"{folder}/{PROGRESS_FILE}")
    frame = Run(database, record).scalars()  # rows of all items of a chain
    return {str(name): frame[name].dropna().tolist() for name in frame.columns}
