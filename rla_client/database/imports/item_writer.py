"""Writer of an imported run's items."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rla_client.code.run_secrets import Secrets
from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.layout import (
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    TIME_STEP,
    TIMESTAMP,
)
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.spool.protocol import MAX_KEYS_PER_ROW
from rla_client.contract.text.csv_lines import write_rows
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.imports.source import Point, RunContent
from rla_client.database.records.notes import NOTE_FORMAT, plain_tag
from rla_client.database.records.record_reader import NOTE_FILE
from rla_client.database.records.told_fields import ENVIRONMENT_FILE

MAX_CELLS = 100_000_000  # of one run, including empty cells: 100 MB of commas
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def write(folder: Path, source: RunContent) -> tuple[str, ...]:
    """Write the items of a run into a new folder, each in a subfolder named after its kind.

    Returns:
        The kinds in the order in which they must appear: the log last.

    Raises:
        BrokenFileError: a file to be copied cannot be read.
        OSError: for instance no space.
    """
    secrets = Secrets.of(source.params)
    log = folder / LOG
    for kind in (LOG, HYPARAMETER):
        (folder / kind).mkdir(parents=True)
        _write_json(folder / kind / f"{HYPARAM_FILE_NAME}.json", secrets.parameters(source.params), sort=True)
    with (log / PROGRESS_FILE).open("w", encoding="utf-8", errors="replace", newline="") as file:
        write_rows(file, [source.columns])
        write_rows(file, source.rows)
    if source.state:
        _write_json(log / RUN_FILE, dict(source.state))
    if source.environment:
        _write_json(log / ENVIRONMENT_FILE, secrets.parameters(source.environment))
    tags = [tag for tag in map(plain_tag, source.tags) if tag]
    if tags or source.note:
        note = secrets.text(source.note)
        _write_json(log / NOTE_FILE, {"format": NOTE_FORMAT, "tags": list(dict.fromkeys(tags)), "note": note})
    if source.text is not None and os.path.isfile(source.text) and not os.path.islink(source.text):
        copy(source.text, log / "log.txt")
    for path, name in source.events:
        if not path.is_symlink():
            copy(path, log / "tb" / "events" / name)
    for path, name in source.files:
        copy(path, folder / OTHER_RESULTS / name)
    for name, (columns, rows) in source.tables.items():
        target = folder / OTHER_RESULTS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        cells = ([cell(value) for value in row] for row in rows)
        with target.open("w", newline="", encoding="utf-8", errors="replace") as file:
            write_rows(file, [list(columns), *cells])
    return (HYPARAMETER, *((OTHER_RESULTS,) if source.files or source.tables else ()), LOG)


def _write_json(path: Path, content: Mapping[Any, Any], *, sort: bool = False) -> None:
    text = json.dumps(content, indent=1, sort_keys=sort, default=str)
    path.write_text(text, encoding="utf-8", errors="replace")


def copy(source: Path, target: Path, *, links: bool = False) -> None:
    """Copy a regular file with its modification time.

    Args:
        source: the file.
        target: the copy; its folder is created.
        links: follow links.

    Raises:
        BrokenFileError: the source is no regular file, or cannot be opened.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        old = open_plain(source, links=links)
    except OSError as error:
        raise BrokenFileError(os.fspath(source), error.strerror or str(error)) from error
    with old, target.open("wb") as new:
        shutil.copyfileobj(old, new, 1 << 20)
        stamp = os.fstat(old.fileno()).st_mtime_ns
    os.utime(target, ns=(stamp, stamp))


def table_of(points: Iterable[Point]) -> tuple[list[str], Iterator[list[str]]]:
    """Columns and rows of points: a row for each step, and more rows if a name has several values at a step.

    Raises:
        ValueError: more columns or cells than one file may have.
    """
    cells: dict[tuple[float, int], dict[str, str]] = {}
    times: dict[tuple[float, int], float] = {}
    again: Counter[tuple[str, float]] = Counter()
    names: set[str] = set()
    for metric, step, when, value in points:
        text, name = cell(value), _CONTROL.sub("_", metric)  # a header is one line
        key = (step, 0)
        if name in cells.get(key, ()):
            again[name, step] += 1
            key = (step, again[name, step])
        names.add(name)
        cells.setdefault(key, {})[name] = text
        times[key] = max(when, times.get(key, 0.0))
    ordered = sorted(names)
    if len(ordered) > MAX_KEYS_PER_ROW or len(ordered) * len(cells) > MAX_CELLS:
        message = f"{len(ordered)} metrics in {len(cells)} rows are more than one progress.csv may have"
        raise ValueError(message)
    columns = [f"_{name}" if name in {TIME_STEP, TIMESTAMP} else name for name in ordered]
    rows = (
        [*(cells[key].get(name, "") for name in ordered), str(key[0]), repr(times[key])]
        for key in sorted(cells)
    )
    return [*columns, TIME_STEP, TIMESTAMP], rows


def cell(value: object) -> str:
    """A value as text in progress.csv: floats by repr, which preserves every bit; lists as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str)
    return "" if value is None else repr(value)
