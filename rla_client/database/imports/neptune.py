"""Import of Neptune's runs.

neptune-exporter writes them as `<project>/<run>_part_<n>.parquet`. Each row is an attribute of a run, or a
point of a series. Series become columns, also texts and histograms (as JSON); single values become
hyper-parameters, those below `sys/` go into environment.json. The project becomes the table. Files are copied
from the folder `files` beside that of the Parquet files, without links. The exporter names part 0 last: a run
without it is incomplete and is left out.
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

from rla_client.contract.safe_names import component_problem
from rla_client.database.imports import item_writer, parquet_file, source

Row = Mapping[str, Any]
NEPTUNE_PART = re.compile(r"(.+)_part_(\d+)\.parquet")
WHOLE_ID = 16  # characters; a longer id is shortened to a hash
_NEPTUNE_SERIES = {f"{kind}_series": f"{kind}_value" for kind in ("float", "string", "histogram")}
_NEPTUNE_FILES = frozenset({"file", "file_series", "file_set", "artifact"})
_NEPTUNE_OWN = "sys/"
_NEPTUNE_NAMES = ["sys/name", "sys/creation_time"]  # attributes read to list runs
_NEPTUNE_ENDED = frozenset({"Inactive", "idle"})  # values of Neptune 2; Neptune 3 has none
_neptune_rows = partial(parquet_file.parquet_rows, what="rla import neptune")


def find_neptune(path: Path) -> Iterator[source.Look]:
    """Runs of all projects below a folder, or of one file."""
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


def _look_neptune(name: str, parts: Sequence[Path]) -> source.ForeignRun:
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
    return source.ForeignRun(shown, began, partial(_read_neptune, run, parts), project.rpartition("/")[2])


def _read_neptune(run: str, parts: Sequence[Path]) -> source.RunContent:
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
        elif (value := _neptune_value(row)) is not None:  # null: an attribute of other runs
            values[name] = value
    own = {name: values.pop(name) for name in list(values) if name.startswith(_NEPTUNE_OWN)}
    tags = [*(own.get("sys/tags") or ()), *(own.get("sys/group_tags") or ())]
    return source.RunContent(
        *item_writer.table_of(points),
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
    """Files of a run by their noted paths, which are relative to the folder of all files or of their project.

    A path may name a folder. Files behind links are left out.
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
    """Value of an attribute; None without one."""
    value = row.get(f"{row['attribute_type']}_value")  # None for an unknown kind
    return value.isoformat() if isinstance(value, datetime) else value


def _neptune_seconds(value: object) -> float | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else None


def _neptune_step(value: Decimal | None) -> float:
    number = value or 0
    return int(number) if number == int(number) else float(number)
