"""Metrics defined by `define_metric`."""

from __future__ import annotations

import fnmatch
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_TIMES = frozenset({"_timestamp", "_runtime"})  # wandb's own metrics; rows over them are at the current step
_OWN = _TIMES | {"_step"}  # metrics that each row has
_STEPS = ("global_step", "step")  # last part of the name of a value that is its row's step
MAX_WAITING = 1000  # rows in memory that wait for the first value of their step metric
MAX_WAIT_S = 600.0  # the first step of a large model takes minutes


@dataclass(frozen=True, slots=True)
class LoggedRow:
    """The values of one call of `log`.

    Attributes:
        values: name to plain value.
        at: the step, unless a step metric determines it.
        wall_time: Unix seconds.
        commit: the row is complete.
    """

    values: dict[str, Any]
    at: float
    wall_time: float
    commit: bool


# functions of (entry so far, new value, mean of all values); other words keep the last value
_SUMMARIES: dict[str, Callable[[float, float, float], float]] = {
    "min": lambda before, value, _: value if value < before or math.isnan(before) else before,
    "max": lambda before, value, _: value if value > before or math.isnan(before) else before,
    "mean": lambda _, __, mean: mean,
    "first": lambda before, _, __: before,
}


class DefinedMetric:
    """The arguments of a `define_metric`, for the names that match a glob."""

    def __init__(
        self, name: str = "", step_metric: str | None = None, summary: str = "", goal: str | None = None
    ) -> None:
        self.name, self.step_metric = name, step_metric
        best = "max" if goal == "maximize" else "min"
        words = {word.strip() for word in summary.split(",") if word.strip()}
        self.words = {best if word == "best" else word for word in words}
        self._seen: dict[str, tuple[int, float]] = {}  # name → (count, sum)

    def summarise(self, key: str, value: Any, summary: dict[str, Any]) -> None:
        """Add a value to the summary."""
        if not self.words or "last" in self.words:
            dict.__setitem__(summary, key, value)
        if not self.words or not isinstance(value, int | float) or "none" in self.words:
            return
        count, total = self._seen.get(key, (0, 0.0))
        count, total = self._seen[key] = count + 1, total + value
        for word in self.words:
            name, function = f"{key}.{word}", _SUMMARIES.get(word)
            before = summary.get(name, value)
            now = value if function is None else function(before, value, total / count)
            dict.__setitem__(summary, name, now)


_PLAIN = DefinedMetric()


class StepMetrics:
    """The defined metrics of a script, with the last value of each.

    The time-step of a row is the value of its metrics' step metric. Metrics of one call with different step
    metrics become several rows, unless these have equal values. Rows before the first value of their step
    metric wait for it, at most MAX_WAITING rows and MAX_WAIT_S. Rows with a step among their values
    (`eval/global_step`) do not wait, as some frameworks name a step metric that they never log. If the step
    of a call was equal to the step metric so far, a call with a later step uses that step and does not need a
    new value of the metric.
    """

    def __init__(self) -> None:
        self._metrics: list[DefinedMetric] = []
        self._last: dict[str, Any] = {}
        self._names: set[str] = set()  # of step metrics
        self._equal_to_step: set[str] = set()  # step metrics whose last value was the step of the call
        self._now: float | None = None  # time-step of the last row that is not drawn over time
        # (row, its step metric, waiting since); several threads may pop from it
        self._waiting: deque[tuple[LoggedRow, str, float]] = deque()
        self._came = False  # a metric got its first value since the waiting rows were last checked

    def __bool__(self) -> bool:
        return bool(self._metrics)

    def define(self, metric: DefinedMetric, *, overwrite: bool = False) -> None:
        """Add the arguments for a name to earlier ones, or replace these."""
        for former in [one for one in self._metrics if one.name == metric.name]:
            self._metrics.remove(former)
            if not overwrite:
                metric.step_metric = metric.step_metric or former.step_metric
                metric.words = metric.words or former.words
        self._metrics.append(metric)
        self._names = {one.step_metric for one in self._metrics if one.step_metric}

    def take(self, values: Mapping[str, Any], given: float | None = None) -> None:
        """Note the values of a call, which may include step metrics.

        Args:
            values: of the call.
            given: step of the call, if any.
        """
        for name in self._names.intersection(values):
            (self._equal_to_step.add if values[name] == given else self._equal_to_step.discard)(name)
        if self._waiting and not self._came:
            self._came = any(self._value(name) is None for name in values)
        self._last.update(values)

    def summarise(self, values: Mapping[str, Any], summary: dict[str, Any]) -> None:
        """Add values to the summary."""
        for key, value in values.items():
            self._said(key, "words").summarise(key, value, summary)

    def step_of(self, name: str, at: float, *, is_given: bool = False) -> float:
        """The time-step for a name: the value of its step metric, or else `at`."""
        return self._place(self._said(name, "step_metric").step_metric, at, is_given=is_given)

    def due(self, row: LoggedRow, *, waits: bool) -> list[tuple[LoggedRow, float]]:
        """The rows that can be written after this one, in order, each with its time-step.

        Args:
            row: that was logged.
            waits: whether it may wait for its step metric, as its call gave no step.
        """
        if not self._metrics:
            return [(row, row.at)]
        found: dict[float, LoggedRow] = {}
        for part, wanted in self._parts(row):
            at = self._place(wanted, part.at, is_given=not waits)
            if waits and wanted is not None and wanted not in _OWN and self._value(wanted) is None:
                if (own := _own_step(part.values)) is None:
                    self._waiting.append((part, wanted, time.monotonic()))
                    continue
                at = own
            if wanted not in _TIMES:
                self._now = at
            same = found.setdefault(at, part)
            if same is not part:
                same.values.update(part.values)
        before = self.rest() if self._is_full() else list(self._released()) if self._came else []
        return [*before, *((part, at) for at, part in found.items())]

    def _is_full(self) -> bool:
        """Whether too many rows wait, or the first one has waited too long."""
        try:
            since = self._waiting[0][2]
        except IndexError:
            return False
        return len(self._waiting) > MAX_WAITING or time.monotonic() - since > MAX_WAIT_S

    def _parts(self, row: LoggedRow) -> list[tuple[LoggedRow, str | None]]:
        """The parts of a row by their step metrics, which are included in the values."""
        steps = {metric.step_metric for metric in self._metrics}
        parts: dict[str | None, dict[str, Any]] = {}
        for name in [name for name in row.values if name not in steps] or row.values:
            parts.setdefault(self._said(name, "step_metric").step_metric, {})[name] = row.values[name]
        if len(parts) <= 1:
            return [(row, next(iter(parts), None))]
        rest = next(iter(parts.values()))
        for name in row.values:
            if name in steps:
                parts.get(name, rest).setdefault(name, row.values[name])
        return [(replace(row, values=values), wanted) for wanted, values in parts.items()]

    def rest(self) -> list[tuple[LoggedRow, float]]:
        """All waiting rows, each with its time-step; they no longer wait."""
        return list(self._released(all_of_them=True))

    def _released(self, *, all_of_them: bool = False) -> Iterator[tuple[LoggedRow, float]]:
        self._came = False
        for _ in range(len(self._waiting)):
            try:
                row, wanted, since = self._waiting.popleft()
            except IndexError:  # another thread took it
                return
            if all_of_them or self._value(wanted) is not None:
                yield row, self._place(wanted, row.at)
            else:
                self._waiting.append((row, wanted, since))

    def _place(self, step_metric: str | None, at: float, *, is_given: bool = False) -> float:
        found = self._now if step_metric in _TIMES else self._value(step_metric)
        if found is None or (is_given and step_metric in self._equal_to_step and at > found):
            return at
        return found

    def _value(self, step_metric: str | None) -> float | None:
        return _finite(self._last.get(step_metric or ""))

    def _said(self, key: str, what: str) -> DefinedMetric:
        """The definition with `words` or `step_metric` for a name: its own, or else that of the last glob."""
        fitting = [one for one in reversed(self._metrics) if fnmatch.fnmatchcase(key, one.name)]
        fitting.sort(key=lambda one: one.name != key)
        return next((one for one in fitting if getattr(one, what)), _PLAIN)


def _own_step(values: Mapping[str, Any]) -> float | None:
    """The step among the values of a row. It is a whole number, unlike `timing/step` of some trainers."""
    found = {name.rpartition("/")[2]: value for name, value in values.items() if _is_whole(value)}
    return next((found[name] for name in _STEPS if name in found), None)


def _is_whole(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value == int(value)


def _finite(value: object) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
