"""Search for an earlier run by date, index or `run_id`.

It works on databases that were moved, on both index spellings, and on runs of the original.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT, FETCHED_MARK, FOLDER_KINDS, LOG
from rla_client.contract.run_file import RUN_FILE, run_file
from rla_client.contract.run_index import RECORD_DATE_FORMAT, RunIndex
from rla_client.contract.safe_names import check_table_name
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.resume.earlier_streams import (
    all_streams,
    await_ended,
    await_taken_in,
    root_of,
    streams_of,
)
from rla_client.run.resume.run_id_index import newest_first
from rla_client.run.state.archive import load_custom_data


class RunNotFoundError(ArgumentError):
    """No run, or several, match a date or index."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run with the data in its files.

    Attributes:
        item: its present folders.
        hyper_param: its hyper-parameters, nested.
        tracked: `key=value` texts.
        custom_data: its custom data, arrays included.
        run_file: content of run.json, empty without one.
        archive: its archive_tester entry, as plain data; empty without one.
    """

    item: ItemFolders
    hyper_param: dict[str, Any]
    tracked: list[str]
    custom_data: dict[str, Any]
    run_file: dict[str, Any]
    archive: Mapping[str, Any]


def find_item(root: str | os.PathLike[str], table: str, which: str) -> ItemFolders:
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
        raise RunNotFoundError(
            f"{what} {which!r} in table {table!r} of {os.fspath(root)}; runs of that day: {days}"
        )
    index = next(iter(found.values()))
    return ItemFolders(os.path.abspath(root), table, index, index.opened)


def read_run(item: ItemFolders, archive: Mapping[str, Any] | None = None) -> FoundRun:
    """Read the data in a run's files; broken ones count as missing. `archive`: its entry, if it was read."""
    from rla_client.run.parameters.hyper_params import read_hyper_params  # noqa: PLC0415
    from rla_client.run.state.archive_reader import read_archive  # noqa: PLC0415

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


def read_run_file(item: ItemFolders) -> dict[str, Any]:
    """run.json of a run, empty without a readable one."""
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
        raise ArgumentError(f"log_type is 'dir' or 'files', got {log_type!r}")
    from datetime import datetime  # noqa: PLC0415

    try:
        opened = datetime.strptime(record_date, RECORD_DATE_FORMAT)  # noqa: DTZ007 - local, as indices
    except ValueError as error:
        raise ArgumentError(
            f"a record date looks like 2026/11/21/09-30-01-123456, got {record_date!r}"
        ) from error
    folder = os.path.join(file_root, task_table_name, opened.strftime("%Y/%m/%d"))
    prefix = opened.strftime("%H-%M-%S-%f")
    if os.path.isdir(folder):
        for entry in sorted(os.scandir(folder), key=lambda e: (not e.name.endswith(".json"), e.name)):
            if entry.name.startswith(prefix) and entry.is_dir() == (log_type == "dir"):
                return folder, entry.name
    return folder, ""


def find_unfinished(root: str, table: str, run_id: str, *, any_state: bool = False) -> ItemFolders | None:
    """The newest run of a table with this `run_id` that did not finish; with `any_state` one that did, too.

    Copies of runs that another machine began are left out, and runs that a later one has continued in an item
    of its own. One whose run.json is damaged is skipped with a warning.
    """
    gone_on: set[str] = set()
    for index in newest_first(Path(root, LOG, table), run_id):
        item = ItemFolders(os.path.abspath(root), table, index, index.opened)
        content = read_run_file(item)
        if not content:
            file = os.path.join(item.folder(LOG), RUN_FILE)
            warn(f"{file} is damaged: if it is the run {run_id!r}, it is not continued")
        parent = content.get("parent")
        if isinstance(parent, dict) and parent.get("chain") is True:
            gone_on.add(str(parent.get("run")))
        if content.get("run_key") != run_id or (content.get("state") == "finished" and not any_state):
            continue
        if index.path not in gone_on and not os.path.exists(os.path.join(item.folder(LOG), FETCHED_MARK)):
            return item
    return None


def find_here(
    root: str,
    table: str,
    run_id: str,
    *,
    autostart: bool,
    any_state: bool = False,
    ends_s: float | None = None,
) -> tuple[ItemFolders | None, str]:
    """`find_unfinished`, after an agent has ingested a run of that name that is only in the spool.

    `ends_s`: wait so long for a living process that writes the run. It may have finished meanwhile, which
    only ingested records show. Where `ends_s` is None, `prepare` does all that.

    Returns:
        The run, and why one is left in the spool (empty where none is).

    Raises:
        StillWritingError: a living process writes it.
    """
    places, where = find_places(), (os.path.realpath(root), table, run_id)
    found = find_unfinished(root, table, run_id, any_state=any_state)
    if found is not None and ends_s is not None:
        streams = streams_of(places, found, read_run_file(found))
        await_ended(streams, ends_s)
        if not await_taken_in(places, streams, autostart=autostart):
            found = find_unfinished(root, table, run_id, any_state=any_state)
    if found is not None:
        return found, ""
    waiting = [
        stream
        for stream in all_streams(places)
        if (told := stream.opening) and (root_of(told), told.table, told.run_key) == where
    ]
    await_ended(waiting, ends_s or 0.0)
    late = await_taken_in(places, waiting, autostart=autostart)
    if late or not waiting:
        return None, late
    return find_unfinished(root, table, run_id, any_state=any_state), ""
