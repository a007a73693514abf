"""Results of a sweep in the database.

A run is judged by its state and its metric, a trial by the mean of its finished runs.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rla_client.contract.errors import RlaError
from rla_client.contract.layout import LOG
from rla_client.contract.run_file import LIVE_STATES, run_file
from rla_client.contract.text.spelling import full_name
from rla_client.database.compare.best_group import TooFewSeeds, too_few_seeds
from rla_client.database.compare.groups import Group
from rla_client.database.compare.mean_interval import mean_and_interval
from rla_client.database.curves.progress_csv import recorded_nan
from rla_client.database.records.record_reader import read_record
from rla_client.database.run import Run
from rla_client.database.tree.data_root import check_data_root
from rla_client.launcher.pending_streams import await_end
from rla_client.sweep.journal import Journal
from rla_client.sweep.run_state import FINISHED, OVER, SweepRun
from rla_client.sweep.spec import TrialMetric

SETTLE_S = 60.0  # for rows of an ended run to be in their files
ELSEWHERE_S = 5.0  # for those of a run whose agent is another machine's, or is just being told of its end
POLL_S = 0.05
_log = logging.getLogger(__name__)
MOST_BEST = 5


def settled(item: Mapping[str, Any]) -> str | None:
    """The state that the database gives an ended run, once the agent has written all of it.

    Of a run of another machine, whose spool is not here, that is what is there after `ELSEWHERE_S` at most.
    """
    try:
        await_end(f"{item['data_root']}/{LOG}/{item['table']}/{item['index']}", SETTLE_S)
    except RlaError as error:
        _log.warning("%s", error)
    deadline = time.monotonic() + ELSEWHERE_S
    while (state := _state(item)) in LIVE_STATES and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return state


def _state(item: Mapping[str, Any]) -> str | None:
    state = run_file(item["data_root"], item["table"], item["index"]).get("state")
    return state if isinstance(state, str) else None


def last_values(item: Mapping[str, Any]) -> Mapping[str, object]:
    """The last value of everything that a run has recorded so far."""
    return read_record(Path(item["data_root"]), item["table"], item["index"], (LOG,)).metrics


def last_number(values: Mapping[str, object], metric: str) -> float | None:
    """That of a metric among `last_values`; None without one, or where the name fits several."""
    try:
        return _number(values.get(full_name(metric, values, "")))
    except RlaError:
        return None


def value(item: Mapping[str, Any], metric: TrialMetric) -> float | None:
    """What a run is judged by; None where it has no such number, NaN where its training diverged."""
    if metric.of == "last":
        return last_number(last_values(item), metric.name)
    root = Path(item["data_root"])
    run = Run(check_data_root(root), read_record(root, item["table"], item["index"], (LOG,)))
    try:
        whole = run.scalars([metric.name])[metric.name]
        diverged = bool(recorded_nan(whole.to_numpy(float)).any())
    except (RlaError, OSError, ValueError):  # the last: texts
        return None
    column = whole.dropna()
    if diverged and (metric.of == "mean" or not len(column)):
        return math.nan
    if not len(column):
        return None
    if metric.of == "mean":
        return _number(column.mean())
    return _number(column.max() if metric.maximize else column.min())


def _number(raw: object) -> float | None:
    try:
        return float(raw)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def trial_value(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean over the seeds of a trial and half of its 95 % interval, of those that have a value.

    A seed whose value is NaN makes the mean NaN: the others would flatter the trial.
    """
    return mean_and_interval([one for one in values if one is not None])


def trials_of(runs: Mapping[int, SweepRun]) -> dict[int, list[SweepRun]]:
    """The runs of each trial."""
    found: dict[int, list[SweepRun]] = {}
    for run in runs.values():
        found.setdefault(run.trial, []).append(run)
    return found


class MetricValues:
    """The metric of each run as far as it is known; that of an ended run is read once."""

    def __init__(self, journal: Journal, metric: TrialMetric | None) -> None:
        self.journal, self.metric = journal, metric
        self._final: dict[tuple[int, int], float] = {}

    def of(self, run: SweepRun) -> float | None:
        """The value so far; None without one."""
        if self.metric is None or not run.attempts:
            return None
        key = (run.number, run.attempts)
        if key in self._final:
            return self._final[key]
        items = self.journal.items(run)
        if not items:
            return None
        if run.state not in OVER:
            return last_number(last_values(items[-1]), self.metric.name)
        read = value(items[-1], self.metric)
        if read is not None:
            self._final[key] = read
        return read

    def of_finished(self, runs: Iterable[SweepRun]) -> list[tuple[SweepRun, float]]:
        """Those that have finished with a value, and this."""
        return [(run, value) for run in runs if run.state == FINISHED and (value := self.of(run)) is not None]


def best_trials(values: MetricValues) -> list[dict[str, Any]]:
    """The best trials by the mean of their finished runs, the best first, with what these have in common."""
    metric = values.metric
    if metric is None:
        return []
    found = []
    for trial, runs in trials_of(values.journal.runs).items():
        there = values.of_finished(runs)
        mean, half = trial_value([value for _, value in there])
        if mean is not None:
            row: dict[str, Any] = {"trial": trial, "±": half, "runs": len(there)}
            row = {"trial": trial, named_column(metric.name, "metric", row): mean, **row}
            same = {
                name: value
                for name, value in runs[0].parameters.items()
                if all(run.parameters.get(name) == value for run in runs)
            }
            rank = (-mean if metric.maximize else mean) if math.isfinite(mean) else math.inf
            found.append((rank, with_parameters(row, same)))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def undecided(values: MetricValues) -> tuple[int, int, TooFewSeeds] | None:
    """The best two trials, where their seeds are too few to tell them apart."""
    if values.metric is None:
        return None
    trials = trials_of(values.journal.runs)
    groups = [
        Group((trial,), numbers=[value for _, value in values.of_finished(runs)])
        for trial, runs in trials.items()
    ]
    found = too_few_seeds(groups, ["trial"], minimize=not values.metric.maximize)
    return None if found is None else ([*trials][found.best], [*trials][found.next], found)


def named_column(name: str, kind: str, taken: Collection[str]) -> str:
    """A column's name; where another column has it, with its kind before it."""
    return f"{kind}.{name}" if name in taken else name


def with_parameters(row: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a table with a column for each parameter."""
    return {**row, **{named_column(name, "parameters", row): value for name, value in parameters.items()}}


def no_metric(journal: Journal, metric: TrialMetric | None, *, wait: bool = False) -> str | None:
    """Why no finished run has a value of the metric that judges them; None where one has, or none finished.

    Args:
        journal: of the sweep.
        metric: that judges them.
        wait: for the rows of the last one to be in their files, if none has it before.
    """
    finished = [run for run in journal.runs.values() if run.state == FINISHED]
    if metric is None or not finished:
        return None
    known: dict[str, None] = {}
    finished.sort(key=lambda run: run.ended)
    for run in finished:
        items = journal.items(run)
        if wait and items and run is finished[-1]:
            settled(items[-1])
        last = last_values(items[-1]) if items else {}
        if last_number(last, metric.name) is not None:
            return None
        known |= dict.fromkeys(last)
    try:
        name = full_name(metric.name, known, f"no finished run has the metric {metric.name!r}")
    except RlaError as error:
        return str(error)
    return f"no finished run has a number for the metric {name!r}"
