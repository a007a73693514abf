"""Import of MLflow's runs.

They are read from the file store (`mlruns`) or the SQLite store (`mlflow.db`).

The file store has a folder for each run, `mlruns/<experiment>/<run>`: meta.yaml, `params/<name>`,
`tags/<name>`, `metrics/<name>` with lines `<ms> <value> <step>`, `artifacts/`. The SQLite store has the same
as tables; MLflow itself stores infinite values there as the largest float, which is kept. The experiment
becomes the table. Tags are kept as `name=value`, and all of them in environment.json; the description
becomes the note. Artifacts are copied from `artifacts/` of the run's folder, for the SQLite store from
`mlruns` or `mlartifacts` beside the database. Deleted runs are left out.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.safe_names import component_problem
from rla_client.database.imports import foreign_values, item_writer, source, sqlite_file
from rla_client.run.parameters.parameter_reader import parse_yaml

MLFLOW_DATABASE = "mlflow.db"
MLFLOW_FOLDER = "mlruns"
MLFLOW_STATES = {
    "FINISHED": "finished", "3": "finished", "FAILED": "failed", "4": "failed",
    "KILLED": "killed", "5": "killed",
}  # by name, or as the file store numbers them # fmt: skip
_NO_EXPERIMENTS = frozenset({".trash", "models"})  # deleted experiments, registered models
_MLFLOW_OWN = "mlflow."  # prefix of MLflow's own tags


def find_mlflow(path: Path) -> Iterator[source.Look]:
    """Runs of `mlflow.db` or `mlruns`, of a folder with one of them, or of one experiment's folder or run."""
    database = path if path.is_file() else path / MLFLOW_DATABASE
    if database.is_file():
        yield from source.guarded(os.fspath(database), _mlflow_stored(database))
    folder = (path / MLFLOW_FOLDER if (path / MLFLOW_FOLDER).is_dir() else path).absolute()
    runs = "*/*/meta.yaml"
    if (folder / "meta.yaml").is_file():
        runs = "meta.yaml" if (folder / "metrics").is_dir() or (folder / "params").is_dir() else "*/meta.yaml"
    titles: dict[Path, str] = {}
    for meta in sorted(folder.glob(runs)) if folder.is_dir() else ():
        about = meta.parent.parent
        if about.name not in _NO_EXPERIMENTS:
            yield from source.guarded(os.fspath(meta.parent), _mlflow_filed(meta.parent, titles))


def _mlflow_filed(folder: Path, titles: dict[Path, str]) -> Iterator[source.Look]:
    """The run of a folder, unless it is deleted."""
    run = _mlflow_yaml(folder / "meta.yaml")
    if run.get("lifecycle_stage") == "deleted":
        return
    about = folder.parent
    if about not in titles:
        titles[about] = _mlflow_title(about)
    run.setdefault("run_uuid", run.get("run_id") or folder.name)
    read = partial(_read_mlflow_filed, folder, run)
    yield os.fspath(folder), partial(_mlflow_found, run, titles[about], read)


def _mlflow_title(experiment: Path) -> str:
    try:
        return str(_mlflow_yaml(experiment / "meta.yaml").get("name") or experiment.name)
    except (BrokenFileError, OSError):
        return experiment.name


def _mlflow_yaml(path: Path) -> dict[str, Any]:
    try:
        found = parse_yaml(read_small(path).decode("utf-8", "replace"))
    except ValueError as error:
        raise BrokenFileError(os.fspath(path), str(error)) from error
    if not isinstance(found, dict):
        raise BrokenFileError(os.fspath(path), "it holds no mapping")
    return found


def _mlflow_found(run: Mapping[str, Any], table: str, read: partial[source.RunContent]) -> source.ForeignRun:
    shown = source.run_name(run.get("run_name") or run.get("name"), run["run_uuid"])
    return source.ForeignRun(shown, _mlflow_seconds(run.get("start_time")) or 0.0, read, table)


def _mlflow_seconds(value: str | float | None) -> float | None:
    return float(value) / 1000 if value not in {None, ""} else None


def _mlflow_source(
    run: Mapping[str, Any],
    points: Iterator[source.Point],
    params: dict[str, str],
    tags: dict[str, str],
    files: Path | None,
) -> source.RunContent:
    own = source.run_state(
        "mlflow", str(run["run_uuid"]), MLFLOW_STATES.get(str(run.get("status"))),
        opened=_mlflow_seconds(run.get("start_time")), closed=_mlflow_seconds(run.get("end_time")),
        user=run.get("user_id") or None,
    )  # fmt: skip
    return source.RunContent(
        *item_writer.table_of(points),
        {name: foreign_values.typed(str(value)) for name, value in params.items()},
        state=own,
        environment={"tags": tags} if tags else {},
        tags=[f"{name}={value}" for name, value in tags.items() if not name.startswith(_MLFLOW_OWN)],
        note=str(tags.get("mlflow.note.content") or ""),
        files=source.files_below(files) if files is not None else (),
    )


def _read_mlflow_filed(folder: Path, run: Mapping[str, Any]) -> source.RunContent:
    params = {name: _mlflow_text(path) for path, name in source.files_below(folder / "params")}
    tags = {name: _mlflow_text(path) for path, name in source.files_below(folder / "tags")}
    points = (
        point for path, name in source.files_below(folder / "metrics") for point in _mlflow_points(path, name)
    )
    return _mlflow_source(run, points, params, tags, folder / "artifacts")


def _mlflow_text(path: Path) -> str:
    return read_small(path).decode("utf-8", "replace")


def _mlflow_points(path: Path, name: str) -> Iterator[source.Point]:
    """Points of a metric's file; an incomplete last line is left out."""
    with open_plain(path) as file:
        for line in file:
            words = line.split() if line.endswith(b"\n") else []
            if words:
                step = int(words[2]) if len(words) > 2 else 0  # noqa: PLR2004 - old versions have no steps
                yield name, step, float(words[0]) / 1000, float(words[1])


def _mlflow_stored(path: Path) -> Iterator[source.Look]:
    with sqlite_file.sqlite_store(path) as store:
        titles = {
            row["experiment_id"]: str(row["name"]) for row in sqlite_file.sqlite_rows(store, "experiments")
        }
        for run in list(
            sqlite_file.sqlite_rows(store, "runs", "lifecycle_stage", "active", "start_time, run_uuid")
        ):
            where = f"run {run['run_uuid']} of {path}"
            read = partial(_read_mlflow_stored, store, path.parent, run)
            yield where, partial(_mlflow_found, run, titles.get(run["experiment_id"], ""), read)


def _read_mlflow_stored(store: sqlite3.Connection, beside: Path, run: Mapping[str, Any]) -> source.RunContent:
    name = run["run_uuid"]
    params, tags = (
        {
            str(row["key"]): str(row["value"])
            for row in sqlite_file.sqlite_rows(store, table, "run_uuid", name)
        }
        for table in ("params", "tags")
    )
    points = (
        (
            str(row["key"]), int(row["step"]), float(row["timestamp"]) / 1000,
            float("nan") if row["is_nan"] else float(row["value"]),
        )
        for row in sqlite_file.sqlite_rows(store, "metrics", "run_uuid", name, "key, step, timestamp, rowid")
    )  # fmt: skip
    parts = (str(run["experiment_id"]), str(name))
    places = [Path(beside, above, *parts, "artifacts") for above in (MLFLOW_FOLDER, "mlartifacts")]
    safe = not any(map(component_problem, parts))
    return _mlflow_source(
        run, points, params, tags, next((one for one in places if safe and one.is_dir()), None)
    )
