"""Time-steps of wandb's history rows by the rules of `define_metric`."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rla_client.database.imports.source import Point


@dataclass(frozen=True, slots=True)
class MetricRule:
    """The step metric of a metric, or of the metrics that match a glob."""

    name: str
    step_metric: str


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A row: values by flat name, wandb's own step, Unix seconds."""

    values: Mapping[str, Any]
    step: int
    when: float


def placed(rows: Sequence[HistoryRow], rules: Sequence[MetricRule]) -> list[Point]:
    """Points of all rows, at the value of the step metric if all values of a row have the same one.

    A row without that value has the last one before it, rows before the first value have the first. Rows
    without any have wandb's own step.
    """
    steps = {rule.step_metric for rule in rules}

    @lru_cache(maxsize=1 << 16)
    def wanted(name: str) -> str:
        own = [rule for rule in rules if rule.name == name]
        fitting = own or [rule for rule in reversed(rules) if fnmatch.fnmatchcase(name, rule.name)]
        return fitting[-1].step_metric if own else fitting[0].step_metric if fitting else ""

    def metric_of(row: HistoryRow) -> str:
        names = [name for name in row.values if name not in steps] or list(row.values)
        found = {wanted(name) for name in names if not name.startswith("_")}
        return found.pop() if len(found) == 1 else ""

    places: list[float | None] = []
    last: dict[str, float] = {}
    waiting: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        for name in steps & row.values.keys():
            value = row.values[name]
            if isinstance(value, int | float) and math.isfinite(value):
                last[name] = value
                for earlier in waiting.pop(name, ()):
                    places[earlier] = value
        metric = metric_of(row) if rules else ""
        places.append(last.get(metric))
        if metric and metric not in last:
            waiting.setdefault(metric, []).append(place)
    return [
        (name, row.step if at is None else at, row.when, value)
        for row, at in zip(rows, places, strict=True)
        for name, value in row.values.items()
    ]
