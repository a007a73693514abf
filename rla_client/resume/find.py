"""Finding a run of a database by its date or index, and what is known of it.

Works on databases that were moved, on both index spellings, and on runs of the original, whose
pickled managers are read without importing or calling anything they name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    FOLDER_KINDS,
    RECORD_DATE_FORMAT,
    RunIndex,
    check_table_name,
)
from rla_client.run.archive import load_custom_data
from rla_client.run.item import Item


class RunNotFoundError(ArgumentError):
    """No run, or several, answer to a date or index."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run as its files tell of it.

    Attributes:
        item: where it lies now.
        hyper_param: its hyper-parameters, nested.
        tracked: `key=value` texts.
        custom_data: its custom data, arrays included.
        run_file: content of run.json, empty without one.
        archive: what its archive_tester entry says, as plain data; empty without one.
    """

    item: Item
    hyper_param: dict[str, Any]
    tracked: list[str]
    custom_data: dict[str, Any]
    run_file: dict[str, Any]
    archive: Mapping[str, Any]


def find_item(root: str | os.PathLike[str], table: str, which: str) -> Item:
    """The item of a run.

    Args:
        root: data root.
        table: task table name.
        which: record date `YYYY/MM/DD/HH-MM-SS-ffffff`, or the whole index.

    Raises:
        RunNotFoundError: none or several match; the message names the neighbours.
    """
    check_table_name(table)
    day, _, name = str(which).strip("/").rpartition("/")
    found: dict[str, RunIndex] = {}
    near: list[str] = []
    for kind in (*FOLDER_KINDS, ARCHIVE_TESTER):
        folder = Path(root, kind, table, day)
        if not day or not folder.is_dir():
            continue
        for entry in sorted(os.listdir(folder)):
            stem = entry if kind != ARCHIVE_TESTER else os.path.splitext(entry)[0]
            index = RunIndex.parse(f"{day}/{stem}")
            if index is None:
                continue
            near.append(index.record_date)
            if stem.startswith(name):
                found[index.path] = index
    if len(found) != 1:
        what = "several runs match" if found else "there is no run"
        days = ", ".join(sorted(set(near))[:10]) or "none on that day"
        message = f"{what} {which!r} in table {table!r} of {os.fspath(root)}; runs of that day: {days}"
        raise RunNotFoundError(message)
    index = next(iter(found.values()))
    return Item(os.path.abspath(root), table, index, index.opened)


def read_run(item: Item, archive: Mapping[str, Any] | None = None) -> FoundRun:
    """What a run's files tell of it; broken ones count as missing. `archive`: its entry, if it was read."""
    from rla_client.run.hyper_params import read_archive, read_hyper_params  # noqa: PLC0415

    stem = os.path.splitext(item.archive_file)[0]
    paths = tuple(f"{stem}{ending}" for ending in (".json", ".pkl") if os.path.exists(f"{stem}{ending}"))
    if archive is None:
        try:
            archive = read_archive(paths) or {}
        except (RlaError, OSError):
            archive = {}
    plain, _problems = read_hyper_params(Path(item.root), item.table, item.index.path)
    custom = archive.get("custom_data") or {}
    if paths and paths[0].endswith(".json"):
        custom = load_custom_data(paths[0], custom)
    return FoundRun(
        item,
        dict(archive.get("hyper_param") or plain or {}),
        [str(entry) for entry in archive.get("hyper_param_record") or ()],
        dict(custom),
        read_run_file(item),
        archive,
    )


def read_run_file(item: Item) -> dict[str, Any]:
    """run.json of a run, empty without a readable one."""
    from rla_client.contract.run_file import run_file  # noqa: PLC0415 - not at import of the package

    return run_file(item.root, item.table, item.index.path)


def log_file_finder(
    record_date: str,
    task_table_name: str = "train",
    file_root: str = f"../{CHECKPOINT}/",
    log_type: str = "dir",
) -> tuple[str, str]:
    """Folder of a day and the name in it of the run of `record_date` (RLA's function).

    Args:
        record_date: `YYYY/MM/DD/HH-MM-SS-ffffff`.
        task_table_name: table.
        file_root: `<data_root>/<kind>`.
        log_type: `dir` looks for folders, `files` for files.

    Returns:
        The day's folder and the name, empty when there is none.

    Raises:
        ArgumentError: not a date, or another log_type.
    """
    if log_type not in {"dir", "files"}:
        message = f"log_type is 'dir' or 'files', got {log_type!r}"
        raise ArgumentError(message)
    from datetime import datetime  # noqa: PLC0415

    try:
        opened = datetime.strptime(record_date, RECORD_DATE_FORMAT)  # noqa: DTZ007 - local, as indices
    except ValueError as error:
        message = f"a record date looks like 2026/11/21/09-30-01-123456, got {record_date!r}"
        raise ArgumentError(message) from error
    folder = os.path.join(file_root, task_table_name, opened.strftime("%Y/%m/%d"))
    prefix = opened.strftime("%H-%M-%S-%f")
    if os.path.isdir(folder):
        for entry in sorted(os.scandir(folder), key=lambda e: (not e.name.endswith(".json"), e.name)):
            if entry.name.startswith(prefix) and entry.is_dir() == (log_type == "dir"):
                return folder, entry.name
    return folder, ""
