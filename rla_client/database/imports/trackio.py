"""trackio: its folder, one `<project>.db` (SQLite), or the Parquet files that it exports.

Parquet: `<project>.parquet` with `<project>_configs.parquet` beside it, or `metrics.parquet` with
`aux/configs.parquet`. The columns are those of the tables, with a column for each metric in place of the
JSON. A project that has both is read from SQLite. The project is the table. trackio does not keep how a run
ended: its state is `unknown`. `media/<project>/<run>` is copied to the results. Names of values that are
not finite ("NaN", "Infinity") are numbers again, as trackio reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.layout import component_problem
from rla_client.database.imports import sqlite
from rla_client.database.imports.source import (
    Found,
    Look,
    Point,
    Source,
    files_below,
    flat,
    guarded,
    parquet_rows,
    read_object,
    run_name,
    run_state,
    seconds_of,
    table_of,
)
from rla_client.database.records import UNKNOWN

_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_STRUCTURE = frozenset(["id", "run_id", "timestamp", "run_name", "step", "log_id", "space_id", "created_at"])
_SIDECARS = (
    "_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases",
    "_run_artifact_links", "_external_run_artifact_links",
)  # fmt: skip
Row = Mapping[str, Any]


def find(path: Path) -> Iterator[Look]:
    """The runs of each project below a folder, or of one file."""
    for one in [path] if path.is_file() else sorted([*path.glob("*.db"), *path.glob("*.parquet")]):
        if one.suffix == ".db":
            yield from guarded(os.fspath(one), _find_stored(one))
        elif not one.stem.endswith(_SIDECARS) and not one.with_suffix(".db").exists():
            yield from guarded(os.fspath(one), _find_exported(one))


def _find_stored(path: Path) -> Iterator[Look]:
    with sqlite.reading(path) as store:
        configs = list(sqlite.rows(store, "configs"))
        named = store.execute("SELECT DISTINCT run_id, run_name FROM metrics ORDER BY run_id").fetchall()
        for run in _merged(configs, named):
            rows = partial(sqlite.rows, store, "metrics", "run_id", run["run_id"], "step, id")
            yield _shown(path, run), partial(_look, path, run, rows)


def _find_exported(path: Path) -> Iterator[Look]:
    beside = path.with_name(f"{path.stem}_configs.parquet")
    configs = beside if beside.exists() else path.parent / "aux" / "configs.parquet"
    rows: dict[Any, list[Row]] = {}
    for row in _parquet(path):
        rows.setdefault(row.get("run_id") or row["run_name"], []).append(row)
    named = [{"run_id": key, "run_name": some[0].get("run_name")} for key, some in rows.items()]
    for run in _merged(_parquet(configs) if configs.exists() else [], named):
        yield _shown(path, run), partial(_look, path, run, partial(iter, rows.get(run["run_id"], [])))


def _parquet(path: Path) -> Iterator[Row]:
    return parquet_rows(path, "rla import trackio of Parquet files")


def _merged(configs: Iterable[Row], named: Iterable[Row]) -> list[Row]:
    """A row a run: that of its configuration, else its name alone."""
    runs: dict[Any, Row] = {row["run_id"]: row for row in named}
    return list((runs | {row["run_id"]: row for row in configs}).values())


def _shown(path: Path, run: Row) -> str:
    return f"run {run.get('run_name')} of {path}"


def _values(path: Path, row: Row, name: str) -> dict[str, Any]:
    """What a row has as JSON, or in columns of its own."""
    if name in row:
        found = read_object(path, row[name])
    else:
        found = {key: value for key, value in row.items() if key not in _STRUCTURE and value is not None}
    return {
        key: _NUMBERS.get(value, value) if isinstance(value, str) else value for key, value in found.items()
    }


def _look(path: Path, run: Row, rows: Callable[[], Iterable[Row]]) -> Found:
    config = _values(path, run, "config")
    began = seconds_of(config.get("_Created") or run.get("created_at"))
    if began is None:
        began = min((seconds_of(row["timestamp"]) or 0.0 for row in rows()), default=0.0)
    name = run_name(run.get("run_name"), run["run_id"])
    project = path.stem if path.stem != "metrics" else path.absolute().parent.name
    return Found(name, began, partial(_read, path, run, rows, (began, config)), project)


def _read(
    path: Path, run: Row, rows: Callable[[], Iterable[Row]], told: tuple[float, dict[str, Any]]
) -> Source:
    began, config = told
    points: list[Point] = []
    for row in rows():
        when, step = seconds_of(row["timestamp"]) or began, int(row["step"])
        points += [(name, step, when, value) for name, value in flat(_values(path, row, "metrics"))]
    own = {name: value for name, value in config.items() if name.startswith("_")}
    parts = (path.stem, str(run.get("run_name")))
    media = Path(path.parent, "media", *parts)
    return Source(
        *table_of(points),
        {name: value for name, value in config.items() if name not in own},
        state=run_state("trackio", str(run["run_id"]), UNKNOWN, opened=began, user=own.get("_Username")),
        environment=own,
        files=files_below(media) if not any(map(component_problem, parts)) else (),
    )
