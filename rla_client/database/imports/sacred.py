"""sacred's FileStorageObserver: a folder for each run with run.json, config.json, metrics.json, cout.txt.

The name of the experiment is the table. A metric's step is that of `log_scalar`. Artifacts are copied to the
results. config.json is plain data here: objects that jsonpickle described stay descriptions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.files import read_small
from rla_client.database.imports import source
from rla_client.database.records import read_json

STATES = {"COMPLETED": "finished", "FAILED": "failed", "TIMEOUT": "failed", "INTERRUPTED": "interrupted"}
MAX_METRICS_BYTES = 1 << 30
MAX_METRICS_VALUES = 50_000_000
_ABOUT = ("command", "experiment", "host", "meta", "resources", "result")
_OWN = ("run.json", "config.json", "metrics.json", "cout.txt", "info.json")


def find(folder: Path) -> Iterator[source.Look]:
    """Each folder below with run.json and config.json."""
    for path in sorted(folder.rglob("run.json")):
        if (path.parent / "config.json").exists():
            yield os.fspath(path.parent), partial(_look, path.parent)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _look(folder: Path) -> source.Found:
    run = read_json(folder / "run.json") or {}
    began = source.seconds_of(run.get("start_time") or run.get("queue_time"))
    title = str(_object(run.get("experiment")).get("name") or "")
    return source.Found(folder.name, began or 0.0, partial(_read, folder, run), title)


def _read(folder: Path, run: Mapping[str, Any]) -> source.Source:
    config = read_json(folder / "config.json") or {}
    meta, host = _object(run.get("meta")), _object(run.get("host"))
    trace = run.get("fail_trace")
    reason = str(trace[-1]).strip()[:500] if isinstance(trace, list) and trace else None
    state = source.run_state(
        "sacred", folder.name, STATES.get(str(run.get("status"))),
        opened=source.seconds_of(run.get("start_time")), closed=source.seconds_of(run.get("stop_time")),
        reason=reason, host=host.get("hostname"),
    )  # fmt: skip
    return source.Source(
        *source.table_of(_points(folder / "metrics.json")),
        config,
        text=folder / "cout.txt",
        state=state,
        environment={name: run[name] for name in _ABOUT if name in run},
        note=str(meta.get("comment") or ""),
        files=source.files_below(folder, but=_OWN),
    )


def _points(path: Path) -> Iterator[source.Point]:
    try:
        data = read_small(path, MAX_METRICS_BYTES)
    except FileNotFoundError:
        return
    for name, series in source.read_object(path, data, MAX_METRICS_VALUES).items():
        lists = [series.get(key) for key in ("steps", "timestamps", "values")]
        if not all(isinstance(one, list) and len(one) == len(lists[0]) for one in lists):
            raise BrokenFileError(os.fspath(path), f"{name!r} has not as many steps as values")
        for step, when, value in zip(*lists, strict=True):
            yield name, int(step), source.seconds_of(when) or 0.0, value
