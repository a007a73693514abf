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
MAY_DIFFER = 0.1  # of the longest run: runs of one length end within an episode of each other


@dataclass(slots=True)
class Group:
    """Runs that have the same values of some parameters.

    Attributes:
        values: of these parameters.
        states: state → how many runs are in it.
        numbers: last value of the metric of each run that has it.
        lengths: last time-step of each of these runs, None where it is not known.
        tables: of the runs.
    """

    values: tuple[object, ...]
    states: Counter[str] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)
    lengths: list[float | None] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)

    @property
    def texts(self) -> list[str]:
        """The values as texts that tell groups apart."""
        return [clean(group_text(value)) for value in self.values]


def group_runs(records: Iterable[Record], by: Sequence[str], metric: str | None, now: float) -> list[Group]:
    """Runs by the values of fields, parameters or metrics (see `group_key`), in the order of these."""
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
    """A field, parameter or metric; of ten thousand runs no JSON is parsed for a parameter that all have."""
    if name in FIELDS or name in ALIASES:
        return RowView(record, now).get(name)
    return parameter_or_metric(record.hyper_json, record.metrics_json, name)


def last_value(record: Record, metric: str) -> object:
    """The last value of a metric, as `record.metrics` has it; None without one."""
    return parameter_or_metric(None, record.metrics_json, metric)


def of_one_length(lengths: Sequence[float | None]) -> bool:
    """Whether runs ended at the same time-step, as far as that is known."""
    known = [length for length in lengths if length is not None and math.isfinite(length)]
    return not known or max(known) - min(known) <= MAY_DIFFER * abs(max(known))


def group_name(by: Sequence[str], group: Group) -> str:
    """The values of a group, for people."""
    return group_label(list(map(clean, by)), group.texts)
