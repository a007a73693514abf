"""What the database says of a sweep's runs: whether they finished, and the metric they are judged by."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla_client.contract.errors import RlaError
from rla_client.contract.layout import LOG
from rla_client.contract.opening import LIVE_STATES, run_file
from rla_client.contract.user_messages import full_name
from rla_client.database.compare import mean_and_interval
from rla_client.database.csv_table import recorded_nan
from rla_client.database.records import read_record
from rla_client.database.runs import Database, Run
from rla_client.launcher.settle import settle
from rla_client.sweep.spec import Metric
from rla_client.sweep.state import RunState

SETTLE_S = 60.0  # for rows of an ended run to be in their files
ELSEWHERE_S = 5.0  # for those of a run whose agent is another machine's, or is just being told of its end
POLL_S = 0.05
_log = logging.getLogger(__name__)


def settled(item: Mapping[str, Any]) -> str | None:
    """The state that the database gives an ended run, once the agent has written all of it.

    Of a run of another machine, whose spool is not here, that is what is there after `ELSEWHERE_S` at most.
    """
    try:
        settle(_folder(item), SETTLE_S)
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


def value(item: Mapping[str, Any], metric: Metric) -> float | None:
    """What a run is judged by; None where it has no such number, NaN where its training diverged."""
    if metric.of == "last":
        return last_number(last_values(item), metric.name)
    root = Path(item["data_root"])
    run = Run(Database(root), read_record(root, item["table"], item["index"], (LOG,)))
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


def trial_value(values: list[float | None]) -> tuple[float | None, float | None]:
    """Mean over the seeds of a trial and half of its 95 % interval, of those that have a value.

    A seed whose value is NaN makes the mean NaN: the others would flatter the trial.
    """
    return mean_and_interval([one for one in values if one is not None])


def trials_of(runs: Mapping[int, RunState]) -> dict[int, list[RunState]]:
    """The runs of each trial."""
    found: dict[int, list[RunState]] = {}
    for run in runs.values():
        found.setdefault(run.trial, []).append(run)
    return found


def _folder(item: Mapping[str, Any]) -> str:
    return f"{item['data_root']}/{LOG}/{item['table']}/{item['index']}"


def _number(raw: object) -> float | None:
    try:
        return float(raw)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
