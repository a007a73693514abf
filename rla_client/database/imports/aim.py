"""Import of Aim's runs.

Repositories (`.aim`) are read by aim itself, which must be installed. It writes into what it opens, so it
opens a copy without links in a temporary folder. It indexes all runs there first, because its own index lacks
the runs that no `aim up` has read. The experiment becomes the table. A metric's name is preceded by its
context: `train/loss` for `subset=train`, `split=a/loss` for others. Images and other objects, which lie
inside of aim's own files, are not imported.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError, MissingExtraError
from rla_client.database.imports import item_writer, source

if TYPE_CHECKING:
    import aim


AIM_REPOSITORY = ".aim"
_AIM_SYSTEM = "__system_params"
_AIM_MACHINE = "__system__"  # prefix of metrics of the machine


def find_aim(path: Path) -> Iterator[source.Look]:
    """Runs of a repository: `.aim`, or the folder that holds it."""
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
            item_writer.copy(file, copy / name)
        (copy / "locks").mkdir(exist_ok=True)
        repository = aim.Repo(made)
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
            repository._recreate_index()  # noqa: SLF001 - what `aim storage reindex` calls
        for name in sorted(repository.list_all_runs()):
            yield f"run {name} of {folder}", partial(_look_aim, aim, repository, name)


def _look_aim(aim: ModuleType, repository: object, name: str) -> source.ForeignRun:
    run = aim.Run(name, repo=repository, read_only=True)
    shown = source.run_name(run.name if str(run.name) != f"Run: {name}" else "", name)
    return source.ForeignRun(
        shown, float(run.creation_time or 0.0), partial(_read_aim, run, name), str(run.experiment or "")
    )


def _read_aim(run: aim.Run, name: str) -> source.RunContent:
    params = dict(run.meta_run_attrs_tree.collect())
    system = params.pop(_AIM_SYSTEM, {})
    metrics = (metric for metric in run.metrics() if not str(metric.name).startswith(_AIM_MACHINE))
    points = [point for metric in metrics for point in _aim_points(metric)]
    ended = run.end_time
    state, closed = ("finished", float(ended)) if ended else (None, None)
    opened = float(run.creation_time or 0.0)
    return source.RunContent(
        *item_writer.table_of(points),
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
