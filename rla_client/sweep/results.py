"""Results of a sweep in the database.

A trial is judged by the mean of the metric over its finished runs.
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

SETTLE_S = 60.0  # time for an agent to write the rows of an ended run
ELSEWHERE_S = 5.0  # the same for a run of another machine's agent, or one that has just learnt of the end
POLL_S = 0.05
_log = logging.getLogger(__name__)
MOST_BEST = 5


def settled(item: Mapping[str, Any]) -> str | None:
    """State of an ended run in the database, once the agent has written all its rows.

    For a run of another machine, with its spool elsewhere, this waits `ELSEWHERE_S` at most.
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
    """Last values of all metrics of a run so far."""
    return read_record(Path(item["data_root"]), item["table"], item["index"], (LOG,)).metrics


def last_number(values: Mapping[str, object], metric: str) -> float | None:
    """Number of a metric in `last_values`; None without one, or if the name matches several."""
    try:
        return _number(values.get(full_name(metric, values, "")))
    except RlaError:
        return None


def value(item: Mapping[str, Any], metric: TrialMetric) -> float | None:
    """Value that a run is judged by; None without a number, NaN if its training diverged."""
    if metric.of == "last":
        return last_number(last_values(item), metric.name)
    root = Path(item["data_root"])
    run = Run(check_data_root(root), read_record(root, item["table"], item["index"], (LOG,)))
    try:
        whole = run.scalars([metric.name])[metric.name]
        diverged = bool(recorded_nan(whole.to_numpy(float)).any())
    except (RlaError, OSError, ValueError):  # ValueError: a column of texts
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
    """Mean over the seeds of a trial that have a value, and half of its 95 % interval.

    A NaN makes the mean NaN, because the other seeds would flatter the trial.
    """
    return mean_and_interval([one for one in values if one is not None])


def trials_of(runs: Mapping[int, SweepRun]) -> dict[int, list[SweepRun]]:
    """Trial → its runs."""
    found: dict[int, list[SweepRun]] = {}
    for run in runs.values():
        found.setdefault(run.trial, []).append(run)
    return found


class MetricValues:
    """Values of the metric per run; those of ended runs are cached."""

    def __init__(self, journal: Journal, metric: TrialMetric | None) -> None:
        self.journal, self.metric = journal, metric
        self._final: dict[tuple[int, int], float] = {}

    def of(self, run: SweepRun) -> float | None:
        """Value of a run so far; None without one."""
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
        """(run, value) of the finished runs that have a value."""
        return [(run, value) for run in runs if run.state == FINISHED and (value := self.of(run)) is not None]


def best_trials(values: MetricValues) -> list[dict[str, Any]]:
    """Rows of trials by the mean of their finished runs, best first, with the parameters that these share."""
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
    """The best two trials if more seeds are needed to tell them apart; else None."""
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
    """Name of a column, prefixed by its kind if the name is in use."""
    return f"{kind}.{name}" if name in taken else name


def with_parameters(row: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A row with a column for each parameter added."""
    return {**row, **{named_column(name, "parameters", row): value for name, value in parameters.items()}}


def no_metric(journal: Journal, metric: TrialMetric | None, *, wait: bool = False) -> str | None:
    """Message that no finished run has the metric; None if one has it, or if no run has finished.

    Args:
        journal: journal of the sweep.
        metric: metric of the sweep.
        wait: wait for the rows of the last run, if no other run has the metric.
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
