"""Import of trackio's runs.

They are read from SQLite files or exported Parquet files: `<project>.db`, `<project>.parquet` with
`<project>_configs.parquet` beside it, or `metrics.parquet` with `aux/configs.parquet`. The Parquet files
have the columns of the SQLite tables, with a column for each metric instead of the JSON. A project with
both is read from SQLite. The project becomes the table. trackio does not record how a run ended, so its
state is `unknown`. `media/<project>/<run>` is copied to the results; tables become CSV files there. Texts
for values that are not finite ("NaN", "Infinity") become numbers, as trackio reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.safe_names import component_problem
from rla_client.database.imports import foreign_values, item_writer, parquet_file, source, sqlite_file
from rla_client.database.imports.wandb_steps import HistoryRow, MetricRule, placed
from rla_client.media.row_media import safe_name

Row = Mapping[str, Any]
_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_STRUCTURE = frozenset(["id", "run_id", "timestamp", "run_name", "step", "log_id", "space_id", "created_at"])
_SIDECARS = (
    "_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases",
    "_run_artifact_links", "_external_run_artifact_links",
)  # fmt: skip
_TABLE = "trackio.table"
_TRAINER_STEP = "train/global_step"
_TRACKIO_NEEDS = "rla import trackio of Parquet files"


def find_trackio(path: Path) -> Iterator[source.Look]:
    """Runs of each project below a folder, or of one file."""
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
    """One row per run: that of its configuration, else its name alone."""
    runs: dict[Any, Row] = {row["run_id"]: row for row in named}
    return list((runs | {row["run_id"]: row for row in configs}).values())


def _trackio_run(path: Path, run: Row) -> str:
    return f"run {run.get('run_name')} of {path}"


def _trackio_values(path: Path, row: Row, name: str) -> dict[str, Any]:
    """Values of a row, which has them as JSON or in columns of their own."""
    if name in row:
        found = foreign_values.read_object(path, row[name])
    else:
        found = {key: value for key, value in row.items() if key not in _STRUCTURE and value is not None}
    return {
        key: _NUMBERS.get(value, value) if isinstance(value, str) else value for key, value in found.items()
    }


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and value.get("_type") == _TABLE and isinstance(value.get("_value"), list)


def _tables(
    logged: Mapping[str, list[tuple[int, list[Any]]]], history: Sequence[HistoryRow]
) -> dict[str, tuple[list[str], list[list[Any]]]]:
    """Each table as `<time-step>-<name>.csv`, at the last step that the Trainer had logged."""
    trained = any(_TRAINER_STEP in row.values for row in history)
    steps: list[int] = []
    for row in history:
        step = row.values.get(_TRAINER_STEP, steps[-1] if steps else row.step) if trained else row.step
        steps.append(step if type(step) is int else row.step)
    found = {}
    for name, tables in logged.items():
        for place, entries in tables:
            rows = [row for row in entries if isinstance(row, dict)]
            columns = list(dict.fromkeys(str(key) for row in rows for key in row))
            folder, slash, file = safe_name(name).rpartition("/")
            found[f"{folder}{slash}{steps[place]}-{file}.csv"] = (
                columns,
                [[row.get(column) for column in columns] for row in rows],
            )
    return found


def _look_trackio(path: Path, run: Row, rows: Callable[[], Iterable[Row]]) -> source.ForeignRun:
    config = _trackio_values(path, run, "config")
    began = foreign_values.seconds_of(config.get("_Created") or run.get("created_at"))
    if began is None:
        began = min((foreign_values.seconds_of(row["timestamp"]) or 0.0 for row in rows()), default=0.0)
    name = source.run_name(run.get("run_name"), run["run_id"])
    project = path.stem if path.stem != "metrics" else path.absolute().parent.name
    return source.ForeignRun(name, began, partial(_read_trackio, path, run, rows, (began, config)), project)


def _read_trackio(
    path: Path, run: Row, rows: Callable[[], Iterable[Row]], about: tuple[float, dict[str, Any]]
) -> source.RunContent:
    began, config = about
    history: list[HistoryRow] = []
    logged: dict[str, list[tuple[int, list[Any]]]] = {}  # name → (number of its row, rows)
    for row in rows():
        when, step = foreign_values.seconds_of(row["timestamp"]) or began, int(row["step"])
        values = _trackio_values(path, row, "metrics")
        for name in [name for name, value in values.items() if _is_table(value)]:
            logged.setdefault(name, []).append((len(history), values.pop(name)["_value"]))
        history.append(HistoryRow(dict(foreign_values.flat(values)), step, when))
    # the Trainer's callback logs its step under this name; trackio's own step only counts calls
    rules = [MetricRule("*", _TRAINER_STEP)] if any(_TRAINER_STEP in row.values for row in history) else []
    points = placed(history, rules)
    own = {name: config.pop(name) for name in list(config) if name.startswith("_")}
    parts = (path.stem, str(run.get("run_name")))
    media = Path(path.parent, "media", *parts)
    return source.RunContent(
        *item_writer.table_of(points),
        config,
        state=source.run_state("trackio", str(run["run_id"]), opened=began, user=own.get("_Username")),
        environment=own,
        files=source.files_below(media) if not any(map(component_problem, parts)) else (),
        tables=_tables(logged, history),
    )
