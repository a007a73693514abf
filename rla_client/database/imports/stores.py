"""Tools that keep the runs of a whole project in one store: MLflow, trackio, Neptune, Aim.

*MLflow*: the file store (`mlruns`) and the SQLite store (`mlflow.db`). The file store has a folder for each
run, `mlruns/<experiment>/<run>`: meta.yaml, `params/<name>`, `tags/<name>`, `metrics/<name>` with lines
`<ms> <value> <step>`, `artifacts/`. The SQLite store has the same as tables; there infinite values were
stored as the largest float by MLflow itself, and stay that. The experiment is the table. Tags are kept as
`name=value`, all of them (those of MLflow's own, too) in environment.json; the description is the note.
Artifacts are copied from `artifacts/` of the run's folder: of the SQLite store, where it lies in `mlruns` or
`mlartifacts` beside the database. Deleted runs are left out.

*trackio*: its folder, one `<project>.db` (SQLite), or the Parquet files that it exports:
`<project>.parquet` with `<project>_configs.parquet` beside it, or `metrics.parquet` with
`aux/configs.parquet`. Their columns are those of the tables, with a column for each metric in place of the
JSON. A project that has both is read from SQLite. The project is the table. trackio does not keep how a run
ended: its state is `unknown`. `media/<project>/<run>` is copied to the results. Names of values that are not
finite ("NaN", "Infinity") are numbers again, as trackio reads them.

*Neptune*, which was switched off: what neptune-exporter wrote, `<project>/<run>_part_<n>.parquet`. Each row
is an attribute of a run, or a point of a series. Series are columns, texts and histograms (as JSON) too;
single values are hyper-parameters, those below `sys/` go to environment.json. The project is the table. Files
are copied from the folder `files` beside the one of the Parquet files, links left out. A part 0 gets its name
last: a run without one was not exported to its end, and is left out.

*Aim*: repositories (`.aim`), read by aim itself, which has to be installed. aim writes into what it opens, so
it opens a copy without links, in a temporary folder, and makes an index of all runs there first: its own
lacks those that no `aim up` has seen. The experiment is the table. A metric is `<name>`, behind what its
context says: `train/loss` of `subset=train`, `split=a/loss` of others. Images and other objects lie inside of
aim's own files and are left there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, BrokenFileError, MissingExtraError
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.safe_names import component_problem
from rla_client.database.imports import source
from rla_client.run.parameters.parameter_reader import parse_yaml

if TYPE_CHECKING:
    import aim

Row = Mapping[str, Any]

MLFLOW_DATABASE = "mlflow.db"
MLFLOW_FOLDER = "mlruns"
MLFLOW_STATES = {
    "FINISHED": "finished", "3": "finished", "FAILED": "failed", "4": "failed",
    "KILLED": "killed", "5": "killed",
}  # by name, or as the file store numbers them # fmt: skip
_NO_EXPERIMENTS = frozenset({".trash", "models"})  # beside them: deleted ones, registered models
_MLFLOW_OWN = "mlflow."  # begins the names of MLflow's own tags

_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_STRUCTURE = frozenset(["id", "run_id", "timestamp", "run_name", "step", "log_id", "space_id", "created_at"])
_SIDECARS = (
    "_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases",
    "_run_artifact_links", "_external_run_artifact_links",
)  # fmt: skip
_TRACKIO_NEEDS = "rla import trackio of Parquet files"

NEPTUNE_PART = re.compile(r"(.+)_part_(\d+)\.parquet")
WHOLE_ID = 16  # characters; a longer one is told apart by its hash
_NEPTUNE_SERIES = {f"{kind}_series": f"{kind}_value" for kind in ("float", "string", "histogram")}
_NEPTUNE_FILES = frozenset({"file", "file_series", "file_set", "artifact"})
_NEPTUNE_OWN = "sys/"
_NEPTUNE_NAMES = ["sys/name", "sys/creation_time"]  # by which a run is found
_NEPTUNE_ENDED = frozenset({"Inactive", "idle"})  # of Neptune 2; Neptune 3 does not say
_neptune_rows = partial(source.parquet_rows, what="rla import neptune")

AIM_REPOSITORY = ".aim"
_AIM_SYSTEM = "__system_params"
_AIM_MACHINE = "__system__"  # begins the names of samples of the machine


# -- MLflow --------------------------------------------------------------------------------------------


def find_mlflow(path: Path) -> Iterator[source.Look]:
    """The runs of a database, or of a folder with `mlflow.db` or `mlruns`, or which is such.

    The folder may also be that of one experiment, or of one run.
    """
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


def _mlflow_found(run: Mapping[str, Any], table: str, read: partial[source.Source]) -> source.Found:
    shown = source.run_name(run.get("run_name") or run.get("name"), run["run_uuid"])
    return source.Found(shown, _mlflow_seconds(run.get("start_time")) or 0.0, read, table)


def _mlflow_seconds(value: str | float | None) -> float | None:
    return float(value) / 1000 if value not in {None, ""} else None


def _mlflow_source(
    run: Mapping[str, Any],
    points: Iterator[source.Point],
    params: dict[str, str],
    tags: dict[str, str],
    files: Path | None,
) -> source.Source:
    own = source.run_state(
        "mlflow", str(run["run_uuid"]), MLFLOW_STATES.get(str(run.get("status"))),
        opened=_mlflow_seconds(run.get("start_time")), closed=_mlflow_seconds(run.get("end_time")),
        user=run.get("user_id") or None,
    )  # fmt: skip
    return source.Source(
        *source.table_of(points),
        {name: source.typed(str(value)) for name, value in params.items()},
        state=own,
        environment={"tags": tags} if tags else {},
        tags=[f"{name}={value}" for name, value in tags.items() if not name.startswith(_MLFLOW_OWN)],
        note=str(tags.get("mlflow.note.content") or ""),
        files=source.files_below(files) if files is not None else (),
    )


def _read_mlflow_filed(folder: Path, run: Mapping[str, Any]) -> source.Source:
    params = {name: _mlflow_text(path) for path, name in source.files_below(folder / "params")}
    tags = {name: _mlflow_text(path) for path, name in source.files_below(folder / "tags")}
    points = (
        point for path, name in source.files_below(folder / "metrics") for point in _mlflow_points(path, name)
    )
    return _mlflow_source(run, points, params, tags, folder / "artifacts")


def _mlflow_text(path: Path) -> str:
    return read_small(path).decode("utf-8", "replace")


def _mlflow_points(path: Path, name: str) -> Iterator[source.Point]:
    """The lines of a metric; a last one that was torn while MLflow wrote it is left out."""
    with open_plain(path) as file:
        for line in file:
            words = line.split() if line.endswith(b"\n") else []
            if words:
                step = int(words[2]) if len(words) > 2 else 0  # noqa: PLR2004 - of versions before steps
                yield name, step, float(words[0]) / 1000, float(words[1])


def _mlflow_stored(path: Path) -> Iterator[source.Look]:
    with source.sqlite_store(path) as store:
        titles = {row["experiment_id"]: str(row["name"]) for row in source.sqlite_rows(store, "experiments")}
        for run in list(
            source.sqlite_rows(store, "runs", "lifecycle_stage", "active", "start_time, run_uuid")
        ):
            where = f"run {run['run_uuid']} of {path}"
            read = partial(_read_mlflow_stored, store, path.parent, run)
            yield where, partial(_mlflow_found, run, titles.get(run["experiment_id"], ""), read)


def _read_mlflow_stored(store: sqlite3.Connection, beside: Path, run: Mapping[str, Any]) -> source.Source:
    name = run["run_uuid"]
    params, tags = (
        {str(row["key"]): str(row["value"]) for row in source.sqlite_rows(store, table, "run_uuid", name)}
        for table in ("params", "tags")
    )
    points = (
        (
            str(row["key"]), int(row["step"]), float(row["timestamp"]) / 1000,
            float("nan") if row["is_nan"] else float(row["value"]),
        )
        for row in source.sqlite_rows(store, "metrics", "run_uuid", name, "key, step, timestamp, rowid")
    )  # fmt: skip
    parts = (str(run["experiment_id"]), str(name))
    places = [Path(beside, above, *parts, "artifacts") for above in (MLFLOW_FOLDER, "mlartifacts")]
    safe = not any(map(component_problem, parts))
    return _mlflow_source(
        run, points, params, tags, next((one for one in places if safe and one.is_dir()), None)
    )


# -- trackio -------------------------------------------------------------------------------------------


def find_trackio(path: Path) -> Iterator[source.Look]:
    """The runs of each project below a folder, or of one file."""
    for one in [path] if path.is_file() else sorted([*path.glob("*.db"), *path.glob("*.parquet")]):
        if one.suffix == ".db":
            yield from source.guarded(os.fspath(one), _trackio_stored(one))
        elif not one.stem.endswith(_SIDECARS) and not one.with_suffix(".db").exists():
            yield from source.guarded(os.fspath(one), _trackio_exported(one))


def _trackio_stored(path: Path) -> Iterator[source.Look]:
    with source.sqlite_store(path) as store:
        configs = list(source.sqlite_rows(store, "configs"))
        named = store.execute("SELECT DISTINCT run_id, run_name FROM metrics ORDER BY run_id").fetchall()
        for run in _trackio_runs(configs, named):
            rows = partial(source.sqlite_rows, store, "metrics", "run_id", run["run_id"], "step, id")
            yield _trackio_run(path, run), partial(_look_trackio, path, run, rows)


def _trackio_exported(path: Path) -> Iterator[source.Look]:
    beside = path.with_name(f"{path.stem}_configs.parquet")
    configs = beside if beside.exists() else path.parent / "aux" / "configs.parquet"
    rows: dict[Any, list[Row]] = {}
    for row in source.parquet_rows(path, _TRACKIO_NEEDS):
        rows.setdefault(row.get("run_id") or row["run_name"], []).append(row)
    named = [{"run_id": key, "run_name": some[0].get("run_name")} for key, some in rows.items()]
    for run in _trackio_runs(source.parquet_rows(configs, _TRACKIO_NEEDS) if configs.exists() else [], named):
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
        found = source.read_object(path, row[name])
    else:
        found = {key: value for key, value in row.items() if key not in _STRUCTURE and value is not None}
    return {
        key: _NUMBERS.get(value, value) if isinstance(value, str) else value for key, value in found.items()
    }


def _look_trackio(path: Path, run: Row, rows: Callable[[], Iterable[Row]]) -> source.Found:
    config = _trackio_values(path, run, "config")
    began = source.seconds_of(config.get("_Created") or run.get("created_at"))
    if began is None:
        began = min((source.seconds_of(row["timestamp"]) or 0.0 for row in rows()), default=0.0)
    name = source.run_name(run.get("run_name"), run["run_id"])
    project = path.stem if path.stem != "metrics" else path.absolute().parent.name
    return source.Found(name, began, partial(_read_trackio, path, run, rows, (began, config)), project)


def _read_trackio(
    path: Path, run: Row, rows: Callable[[], Iterable[Row]], told: tuple[float, dict[str, Any]]
) -> source.Source:
    began, config = told
    points: list[source.Point] = []
    for row in rows():
        when, step = source.seconds_of(row["timestamp"]) or began, int(row["step"])
        points += [
            (name, step, when, value) for name, value in source.flat(_trackio_values(path, row, "metrics"))
        ]
    own = {name: config.pop(name) for name in list(config) if name.startswith("_")}
    parts = (path.stem, str(run.get("run_name")))
    media = Path(path.parent, "media", *parts)
    return source.Source(
        *source.table_of(points),
        config,
        state=source.run_state("trackio", str(run["run_id"]), opened=began, user=own.get("_Username")),
        environment=own,
        files=source.files_below(media) if not any(map(component_problem, parts)) else (),
    )


# -- Neptune -------------------------------------------------------------------------------------------


def find_neptune(path: Path) -> Iterator[source.Look]:
    """The runs of all projects below a folder, or of one file."""
    parts: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for one in [path] if path.is_file() else sorted(path.rglob("*.parquet")):
        found = NEPTUNE_PART.fullmatch(one.name)
        if found is not None and not one.is_symlink():
            parts.setdefault((one.parent, found[1]), []).append((int(found[2]), one))
    for (_, name), numbered in parts.items():
        files = [one for _, one in sorted(numbered)]
        if min(number for number, _ in numbered) == 0 or path.is_file():
            where = os.fspath(files[0])
            yield from source.guarded(where, [(where, partial(_look_neptune, name, files))])


def _look_neptune(name: str, parts: Sequence[Path]) -> source.Found:
    wanted: list[tuple[str, str, object]] = [("attribute_path", "in", _NEPTUNE_NAMES)]
    rows = [row for part in parts for row in _neptune_rows(part, filters=wanted)]
    values = {row["attribute_path"]: value for row in rows if (value := _neptune_value(row)) is not None}
    first = rows[0] if rows else next(_neptune_rows(parts[0], columns=["run_id", "project_id"]), {})
    run = str(first.get("run_id") or name)
    project = str(first.get("project_id") or parts[0].parent.name)
    title = values.get("sys/name")
    began = _neptune_seconds(values.get("sys/creation_time")) or 0.0
    ident = run if len(run) <= WHOLE_ID else f"{run[:7]}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    shown = source.run_name(title if title != run else run if ident != run else None, ident)
    return source.Found(shown, began, partial(_read_neptune, run, parts), project.rpartition("/")[2])


def _read_neptune(run: str, parts: Sequence[Path]) -> source.Source:
    points: list[source.Point] = []
    values: dict[str, Any] = {}
    named: list[str] = []
    for row in (row for part in parts for row in _neptune_rows(part)):
        name, kind = str(row["attribute_path"]), row["attribute_type"]
        if kind in _NEPTUNE_SERIES:
            when = _neptune_seconds(row["timestamp"]) or 0.0
            points.append((name, _neptune_step(row["step"]), when, row[_NEPTUNE_SERIES[kind]]))
        elif kind in _NEPTUNE_FILES:
            named.append(str((row["file_value"] or {}).get("path") or ""))
        elif (value := _neptune_value(row)) is not None:  # null: what only other runs have
            values[name] = value
    own = {name: values.pop(name) for name in list(values) if name.startswith(_NEPTUNE_OWN)}
    tags = [*(own.get("sys/tags") or ()), *(own.get("sys/group_tags") or ())]
    return source.Source(
        *source.table_of(points),
        values,
        state=_neptune_state(run, own),
        environment={name: str(value) for name, value in own.items()},
        tags=tags,
        note=str(own.get("sys/description") or ""),
        files=list(_neptune_files(parts[0].parent, dict.fromkeys(named))),
    )


def _neptune_state(run: str, own: Mapping[str, Any]) -> dict[str, Any]:
    state = None
    if own.get("sys/failed") is True:
        state = "failed"
    elif own.get("sys/failed") is False and own.get("sys/state") in _NEPTUNE_ENDED:
        state = "finished"
    return source.run_state(
        "neptune", run, state,
        opened=_neptune_seconds(own.get("sys/creation_time")),
        closed=_neptune_seconds(own.get("sys/modification_time")) if state else None,
        user=own.get("sys/owner"), host=own.get("sys/hostname"),
    )  # fmt: skip


def _neptune_files(project: Path, named: Mapping[str, Any]) -> Iterator[source.File]:
    """Where the files lie, whose paths are below the folder of all files or that of their project.

    A path may be that of a folder. What a link leads to is left out.
    """
    above = project.resolve().parent.parent / "files"
    for path in named:
        if not path or any(map(component_problem, path.split("/"))):
            continue
        below = path.removeprefix(f"{project.name}/")
        for one in (above / project.name / below, above / path):
            if one.exists() and one.resolve() == one:
                some = [(one, "")] if one.is_file() else source.files_below(one)
                yield from ((file, f"{below}/{name}".rstrip("/")) for file, name in some)
                break


def _neptune_value(row: Row) -> object:
    """The value of an attribute that has one."""
    value = row.get(f"{row['attribute_type']}_value")  # of a kind that is not known, none
    return value.isoformat() if isinstance(value, datetime) else value


def _neptune_seconds(value: object) -> float | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else None


def _neptune_step(value: Decimal | None) -> float:
    number = value or 0
    return int(number) if number == int(number) else float(number)


# -- Aim -----------------------------------------------------------------------------------------------


def find_aim(path: Path) -> Iterator[source.Look]:
    """The runs of a repository: the folder that holds `.aim`, or that itself."""
    folder = path if path.name == AIM_REPOSITORY else path / AIM_REPOSITORY
    if not (folder / "meta" / "chunks").is_dir():
        return
    try:
        import aim
    except ModuleNotFoundError as error:
        message = f"rla import aim needs {error.name}: pip install aim"
        raise MissingExtraError(message, name=error.name) from error
    if not hasattr(aim, "Repo"):
        message = "rla import aim needs aim 3 or later: pip install aim"
        raise ArgumentError(message)
    with tempfile.TemporaryDirectory(prefix="rla-import-") as made:
        copy = Path(made, AIM_REPOSITORY)
        for file, name in source.files_below(folder):
            source.copy(file, copy / name)
        (copy / "locks").mkdir(exist_ok=True)
        repository = aim.Repo(made)
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
            repository._recreate_index()  # noqa: SLF001 - what `aim storage reindex` calls
        for name in sorted(repository.list_all_runs()):
            yield f"run {name} of {folder}", partial(_look_aim, aim, repository, name)


def _look_aim(aim: ModuleType, repository: object, name: str) -> source.Found:
    run = aim.Run(name, repo=repository, read_only=True)
    shown = source.run_name(run.name if str(run.name) != f"Run: {name}" else "", name)
    return source.Found(
        shown, float(run.creation_time or 0.0), partial(_read_aim, run, name), str(run.experiment or "")
    )


def _read_aim(run: aim.Run, name: str) -> source.Source:
    params = dict(run.meta_run_attrs_tree.collect())
    system = params.pop(_AIM_SYSTEM, {})
    metrics = (metric for metric in run.metrics() if not str(metric.name).startswith(_AIM_MACHINE))
    points = [point for metric in metrics for point in _aim_points(metric)]
    ended = run.end_time
    state, closed = ("finished", float(ended)) if ended else (None, None)
    opened = float(run.creation_time or 0.0)
    return source.Source(
        *source.table_of(points),
        params,
        state=source.run_state("aim", name, state, opened=opened, closed=closed),
        environment=system if isinstance(system, dict) else {},
        tags=[str(tag) for tag in run.tags],
        note=str(run.description or ""),
    )


def _aim_points(metric: aim.Metric) -> Iterator[source.Point]:
    context = metric.context.to_dict()
    above = [str(value) if key == "subset" else f"{key}={value}" for key, value in context.items()]
    name = "/".join([*above, str(metric.name)])
    steps, (values, _, times) = metric.data.items_list()
    for step, value, when in zip(steps, values, times, strict=True):
        yield name, int(step), float(when), value
