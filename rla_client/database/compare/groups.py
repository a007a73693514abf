"""Groups of runs with the same values of some parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rla_client.database.compare.group_key import group_label, group_order, group_text
from rla_client.database.filter.json_values import parameter_or_metric
from rla_client.database.records.record import Record
from rla_client.database.records.row_view import ALIASES, FIELDS, RowView
from rla_client.database.text.safe_text import clean

SEED = "seed"
MAY_DIFFER = 0.1  # share of the longest run: runs of equal length end within one episode of each other


@dataclass(slots=True)
class Group:
    """Runs with the same values of some parameters.

    Attributes:
        values: values of these parameters.
        states: state → number of runs.
        numbers: last value of the metric in each run that has it.
        lengths: last time-step of each of these runs, None if unknown.
        tables: task tables of the runs.
    """

    values: tuple[object, ...]
    states: Counter[str] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)
    lengths: list[float | None] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)

    @property
    def texts(self) -> list[str]:
        """The values as texts that differ between groups."""
        return [clean(group_text(value)) for value in self.values]


def group_runs(records: Iterable[Record], by: Sequence[str], metric: str | None, now: float) -> list[Group]:
    """Groups of runs by the values of fields, parameters or metrics (see `group_key`), sorted by these."""
    found: dict[tuple[str, ...], Group] = {}
    for record in records:
        values = tuple(_value(record, name, now) for name in by)
        group = found.setdefault(tuple(map(group_text, values)), Group(values))
        group.states[record.shown_state(now)] += 1
        group.tables.add(record.table)
        value = None if metric is None else last_value(record, metric)
        if isinstance(value, int | float):
            group.numbers.append(float(value))
            group.lengths.append(record.time_step)
    return [found[key] for key in sorted(found, key=lambda texts: list(map(group_order, texts)))]


def _value(record: Record, name: str, now: float) -> object:
    """Value of a field, parameter or metric; a top-level parameter is read without parsing all JSON."""
    if name in FIELDS or name in ALIASES:
        return RowView(record, now).get(name)
    return parameter_or_metric(record.hyper_json, record.metrics_json, name)


def last_value(record: Record, metric: str) -> object:
    """Last value of a metric in `record.metrics`; None without one."""
    return parameter_or_metric(None, record.metrics_json, metric)


def of_one_length(lengths: Sequence[float | None]) -> bool:
    """Whether runs ended at about the same time-step; unknown lengths are ignored."""
    known = [length for length in lengths if length is not None and math.isfinite(length)]
    return not known or max(known) - min(known) <= MAY_DIFFER * abs(max(known))


def group_name(by: Sequence[str], group: Group) -> str:
    """Label of a group, for people."""
    return group_label(list(map(clean, by)), group.texts)
