"""Runs of trackio: its SQLite files, its exported Parquet files.

Its folder has one `<project>.db`, or the exported `<project>.parquet` with `<project>_configs.parquet` beside
it, or `metrics.parquet` with `aux/configs.parquet`. Their columns are those of the tables, with a column for
each metric in place of the JSON. A project that has both is read from SQLite. The project is the table.
trackio does not keep how a run ended: its state is `unknown`. `media/<project>/<run>` is copied to the
results. Names of values that are not finite ("NaN", "Infinity") are numbers again, as trackio reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.safe_names import component_problem
from rla_client.database.imports import foreign_values, item_writer, parquet_file, source, sqlite_file

Row = Mapping[str, Any]
_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_STRUCTURE = frozenset(["id", "run_id", "timestamp", "run_name", "step", "log_id", "space_id", "created_at"])
_SIDECARS = (
    "_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases",
    "_run_artifact_links", "_external_run_artifact_links",
)  # fmt: skip
_TRACKIO_NEEDS = "rla import trackio of Parquet files"


def find_trackio(path: Path) -> Iterator[source.Look]:
    """The runs of each project below a folder, or of one file."""
    for one in [path] if path.is_file() else sorted([*path.glob("*.db"), *path.glob("*.parquet")]):
        if one.suffix == ".db":
            yield from source.guarded(os.fspath(one), _trackio_stored(one))
        elif not one.stem.endswith(_SIDECARS) and not one.with_suffix(".db").exists():
            yield from source.guarded(os.fspath(one), _trackio_exported(one))


def _trackio_stored(path: Path) -> Iterator[source.Look]:
    with sqlite_file.sqlite_store(path) as store:
        configs = list(sqlite_file.sqlite_rows(store, "configs"))
        named = store.execute("SELECT DISTINCT run_id, run_name FROM metrics ORDER BY run_id").fetchall()
        for run in _trackio_runs(configs, named):
            rows = partial(sqlite_file.sqlite_rows, store, "metrics", "run_id", run["run_id"], "step, id")
            yield _trackio_run(path, run), partial(_look_trackio, path, run, rows)


def _trackio_exported(path: Path) -> Iterator[source.Look]:
    beside = path.with_name(f"{path.stem}_configs.parquet")
    configs = beside if beside.exists() else path.parent / "aux" / "configs.parquet"
    rows: dict[Any, list[Row]] = {}
    for row in parquet_file.parquet_rows(path, _TRACKIO_NEEDS):
        rows.setdefault(row.get("run_id") or row["run_name"], []).append(row)
    named = [{"run_id": key, "run_name": some[0].get("run_name")} for key, some in rows.items()]
    for run in _trackio_runs(
        parquet_file.parquet_rows(configs, _TRACKIO_NEEDS) if configs.exists() else [], named
    ):
        own = partial(iter, rows.get(run["run_id"], []))
        yield _trackio_run(path, run), partial(_look_trackio, path, run, own)


def _trackio_runs(configs: Iterable[Row], named: Iterable[Row]) -> list[Row]:
    """A row a run: that of its configuration, else its name alone."""
    runs: dict[Any, Row] = {row["run_id"]: row for row in named}
    return list((runs | {row["run_id"]: row for row in configs}).values())


def _trackio_run(path: Path, run: Row) -> str:
    return f"run {run.get('run_name')} of {path}"


def _trackio_values(path: Path, row: Row, name: str) -> dict[str, Any]:
    """What a row has as JSON, or in columns of its own."""
    if name in row:
        found = foreign_values.read_object(path, row[name])
    else:
        found = {key: value for key, value in row.items() if key not in _STRUCTURE and value is not None}
    return {
        key: _NUMBERS.get(value, value) if isinstance(value, str) else value for key, value in found.items()
    }


def _look_trackio(path: Path, run: Row, rows: Callable[[], Iterable[Row]]) -> source.Found:
    config = _trackio_values(path, run, "config")
    began = foreign_values.seconds_of(config.get("_Created") or run.get("created_at"))
    if began is None:
        began = min((foreign_values.seconds_of(row["timestamp"]) or 0.0 for row in rows()), default=0.0)
    name = source.run_name(run.get("run_name"), run["run_id"])
    project = path.stem if path.stem != "metrics" else path.absolute().parent.name
    return source.Found(name, began, partial(_read_trackio, path, run, rows, (began, config)), project)


def _read_trackio(
    path: Path, run: Row, rows: Callable[[], Iterable[Row]], told: tuple[float, dict[str, Any]]
) -> source.Source:
    began, config = told
    points: list[source.Point] = []
    for row in rows():
        when, step = foreign_values.seconds_of(row["timestamp"]) or began, int(row["step"])
        points += [
            (name, step, when, value)
            for name, value in foreign_values.flat(_trackio_values(path, row, "metrics"))
        ]
    own = {name: config.pop(name) for name in list(config) if name.startswith("_")}
    parts = (path.stem, str(run.get("run_name")))
    media = Path(path.parent, "media", *parts)
    return source.Source(
        *item_writer.table_of(points),
        config,
        state=source.run_state("trackio", str(run["run_id"]), opened=began, user=own.get("_Username")),
        environment=own,
        files=source.files_below(media) if not any(map(component_problem, parts)) else (),
    )
