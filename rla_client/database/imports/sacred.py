"""Import of sacred's runs.

sacred's FileStorageObserver writes a folder per run, with run.json, config.json, metrics.json, cout.txt and
info.json. The index consists of the run's start and its folder's name; the name of the experiment becomes the
table. A metric's step is that of `log_scalar`. Artifacts are copied to the results. config.json is read as
plain data: objects that jsonpickle described stay descriptions.

info.json is what the program put into `_run.info`. A list of numbers `X` beside a list `X_T` is a curve over
the steps in `X_T`, as PyMARL writes them; either list may have one more entry, because sacred stores them
while the program appends. The file is also copied to the results.

A killed run leaves its files torn. What can be read of them is imported, the rest is copied to the results.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.database.imports.foreign_values import read_object, seconds_of
from rla_client.database.imports.item_writer import table_of
from rla_client.database.imports.source import ForeignRun, Look, Point, RunContent, files_below, run_state
from rla_client.database.json_files import read_json

SACRED_STATES = {
    "COMPLETED": "finished", "FAILED": "failed", "TIMEOUT": "failed", "INTERRUPTED": "interrupted",
}  # fmt: skip
MAX_SACRED_BYTES = 1 << 30  # of metrics.json
MAX_SACRED_VALUES = 50_000_000
CONFIG, METRICS, INFO = "config.json", "metrics.json", "info.json"
STEPS_ENDING = "_T"  # in info.json, of the name of a list of steps
_SACRED_ABOUT = ("command", "experiment", "host", "meta", "resources", "result")
_SACRED_OWN = ("run.json", CONFIG, "cout.txt")

_Read = TypeVar("_Read")


def find_sacred(folder: Path) -> Iterator[Look]:
    """Each folder below that has run.json and config.json."""
    for path in sorted(folder.rglob("run.json")):
        if (path.parent / "config.json").exists():
            yield os.fspath(path.parent), partial(_look_sacred, path.parent)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _look_sacred(folder: Path) -> ForeignRun:
    run = read_json(folder / "run.json") or {}
    began = seconds_of(run.get("start_time") or run.get("queue_time"))
    title = str(_object(run.get("experiment")).get("name") or "")
    return ForeignRun(folder.name, began or 0.0, partial(_read_sacred, folder, run), title)


def _read_sacred(folder: Path, run: Mapping[str, Any]) -> RunContent:
    remarks: list[str] = []
    config = _if_whole(CONFIG, lambda: read_json(folder / CONFIG), remarks) or {}
    meta, host = _object(run.get("meta")), _object(run.get("host"))
    trace = run.get("fail_trace")
    reason = str(trace[-1]).strip()[:500] if isinstance(trace, list) and trace else None
    state = run_state(
        "sacred", folder.name, SACRED_STATES.get(str(run.get("status"))),
        opened=seconds_of(run.get("start_time")), closed=seconds_of(run.get("stop_time")),
        reason=reason, host=host.get("hostname"),
    )  # fmt: skip
    began = seconds_of(run.get("start_time")) or 0.0
    logged = _if_whole(METRICS, lambda: list(_sacred_points(folder / METRICS)), remarks)
    own = _SACRED_OWN if logged is None else (*_SACRED_OWN, METRICS)
    curves = logged or []
    known = {name for name, *_ in curves}
    info = _if_whole(INFO, lambda: list(_info_points(folder / INFO, began)), remarks) or []
    curves += [point for point in info if point[0] not in known]  # EPyMARL writes metrics.json, too
    return RunContent(
        *table_of(curves),
        config,
        text=folder / "cout.txt",
        state=state,
        environment={name: run[name] for name in _SACRED_ABOUT if name in run},
        note=str(meta.get("comment") or ""),
        files=files_below(folder, but=own),
        remarks=remarks,
    )


def _if_whole(name: str, read: Callable[[], _Read], remarks: list[str]) -> _Read | None:
    """Content of one of a run's files; None, and a remark, if it is torn."""
    try:
        return read()
    except (BrokenFileError, OSError):
        remarks.append(f"{name} is torn or cannot be read: the run has no values of it")
        return None


def _sacred_points(path: Path) -> Iterator[Point]:
    try:
        data = read_small(path, MAX_SACRED_BYTES)
    except FileNotFoundError:
        return
    for name, series in read_object(path, data, MAX_SACRED_VALUES).items():
        lists = [series.get(key) for key in ("steps", "timestamps", "values")]
        if not all(isinstance(one, list) and len(one) == len(lists[0]) for one in lists):
            raise BrokenFileError(os.fspath(path), f"{name!r} has not as many steps as values")
        for step, when, value in zip(*lists, strict=True):
            if isinstance(step, int | float) and math.isfinite(step):
                number = _number(value)
                yield name, int(step), seconds_of(when) or 0.0, value if number is None else number


def _info_points(path: Path, when: float) -> Iterator[Point]:
    """Points of the curves in info.json, all with the time of the run's start."""
    try:
        found = read_object(path, read_small(path, MAX_SACRED_BYTES), MAX_SACRED_VALUES)
    except FileNotFoundError:
        return
    for name, values in found.items():
        steps = found.get(f"{name}{STEPS_ENDING}")
        if not isinstance(values, list) or not isinstance(steps, list) or abs(len(values) - len(steps)) > 1:
            continue
        for step, value in zip(map(_number, steps), map(_number, values), strict=False):
            if step is not None and math.isfinite(step) and value is not None:
                yield name, int(step), when, value


def _number(value: object) -> float | int | None:
    """A number, also a numpy number as jsonpickle writes it; None for other values."""
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
