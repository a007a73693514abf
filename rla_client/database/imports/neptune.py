"""Neptune, which was switched off: what neptune-exporter wrote, `<project>/<run>_part_<n>.parquet`.

Each row is an attribute of a run, or a point of a series. Series are columns, texts and histograms (as JSON)
too; single values are hyper-parameters, those below `sys/` go to environment.json. The project is the table.
Files are copied from the folder `files` beside the one of the Parquet files, links left out. A part 0 gets
its name last: a run without one was not exported to its end, and is left out.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.layout import component_problem
from rla_client.database.imports import source

WHOLE_ID = 16  # characters; a longer one is told apart by its hash
PART = re.compile(r"(.+)_part_(\d+)\.parquet")
_SERIES = {f"{kind}_series": f"{kind}_value" for kind in ("float", "string", "histogram")}
_FILES = frozenset({"file", "file_series", "file_set", "artifact"})
_OWN = "sys/"
_NAMES = ["sys/name", "sys/creation_time"]  # by which a run is found
_ENDED = frozenset({"Inactive", "idle"})  # of Neptune 2; Neptune 3 does not say
Row = Mapping[str, Any]
_rows = partial(source.parquet_rows, what="rla import neptune")


def find(path: Path) -> Iterator[source.Look]:
    """The runs of all projects below a folder, or of one file."""
    parts: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for one in [path] if path.is_file() else sorted(path.rglob("*.parquet")):
        found = PART.fullmatch(one.name)
        if found is not None and not one.is_symlink():
            parts.setdefault((one.parent, found[1]), []).append((int(found[2]), one))
    for (_, name), numbered in parts.items():
        files = [one for _, one in sorted(numbered)]
        if min(number for number, _ in numbered) == 0 or path.is_file():
            where = os.fspath(files[0])
            yield from source.guarded(where, [(where, partial(_look, name, files))])


def _look(name: str, parts: Sequence[Path]) -> source.Found:
    rows = [row for part in parts for row in _rows(part, filters=[("attribute_path", "in", _NAMES)])]
    values = {row["attribute_path"]: value for row in rows if (value := _single(row)) is not None}
    first = rows[0] if rows else next(_rows(parts[0], columns=["run_id", "project_id"]), {})
    run = str(first.get("run_id") or name)
    project = str(first.get("project_id") or parts[0].parent.name)
    title = values.get("sys/name")
    began = _seconds(values.get("sys/creation_time")) or 0.0
    ident = run if len(run) <= WHOLE_ID else f"{run[:7]}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    shown = source.run_name(title if title != run else run if ident != run else None, ident)
    return source.Found(shown, began, partial(_read, run, parts), project.rpartition("/")[2])


def _read(run: str, parts: Sequence[Path]) -> source.Source:
    points: list[source.Point] = []
    values: dict[str, Any] = {}
    named: list[str] = []
    for row in (row for part in parts for row in _rows(part)):
        name, kind = str(row["attribute_path"]), row["attribute_type"]
        if kind in _SERIES:
            when = _seconds(row["timestamp"]) or 0.0
            points.append((name, _step(row["step"]), when, row[_SERIES[kind]]))
        elif kind in _FILES:
            named.append(str((row["file_value"] or {}).get("path") or ""))
        elif (value := _single(row)) is not None:  # the exporter writes what other runs have, too, as null
            values[name] = value
    own = {name: values.pop(name) for name in list(values) if name.startswith(_OWN)}
    tags = [*(own.get("sys/tags") or ()), *(own.get("sys/group_tags") or ())]
    return source.Source(
        *source.table_of(points),
        values,
        state=_state(run, own),
        environment={name: str(value) for name, value in own.items()},
        tags=tags,
        note=str(own.get("sys/description") or ""),
        files=list(_files(parts[0].parent, dict.fromkeys(named))),
    )


def _state(run: str, own: Mapping[str, Any]) -> dict[str, Any]:
    state = None
    if own.get("sys/failed") is True:
        state = "failed"
    elif own.get("sys/failed") is False and own.get("sys/state") in _ENDED:
        state = "finished"
    return source.run_state(
        "neptune", run, state,
        opened=_seconds(own.get("sys/creation_time")),
        closed=_seconds(own.get("sys/modification_time")) if state else None,
        user=own.get("sys/owner"), host=own.get("sys/hostname"),
    )  # fmt: skip


def _files(project: Path, named: Mapping[str, Any]) -> Iterator[source.File]:
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


def _single(row: Row) -> object:
    """The value of an attribute that has one."""
    value = row.get(f"{row['attribute_type']}_value")  # of a kind that is not known, none
    return value.isoformat() if isinstance(value, datetime) else value


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else None


def _step(value: Decimal | None) -> float:
    number = value or 0
    return int(number) if number == int(number) else float(number)
