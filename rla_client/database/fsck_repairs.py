"""Repairs of faults found by `fsck`.

What a repair removes goes to the trash. The caller holds the lock of `changing`. After a kill in the
middle of a repair, the fault is either still there or repaired.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import ARCHIVE_TESTER, TIME_STEP
from rla_client.contract.sharded_checkpoint.publish import publish
from rla_client.contract.text.csv_lines import rows_text
from rla_client.database.changes.trash import move_to_trash
from rla_client.database.curves.csv_tail import read_tail
from rla_client.database.curves.progress_csv import PROGRESS_FILE, CsvTable
from rla_client.database.fsck import PARAMETER_FILES, TreeFault, good_parameters, whole_rows
from rla_client.database.json_files import read_json
from rla_client.database.tree.items import Item, run_items

ON_REQUEST = frozenset({"orphan", "stray"})  # perhaps somebody's own files: repaired only when named


def repair(data_root: Path, fault: TreeFault, now: float) -> None:
    """Repair one fault; the caller holds `changing`.

    Raises:
        KeyError: faults of this kind cannot be repaired.
        OSError: the file cannot be changed.
    """
    _REPAIRS[fault.kind](data_root, fault, now)


def _to_trash(data_root: Path, fault: TreeFault, now: float, paths: Sequence[str] = ()) -> None:
    kind = fault.where.split("/", 1)[0]
    gone = tuple(paths) or (str(data_root / fault.where),)
    move_to_trash(data_root, [Item(kind, fault.table, fault.index, gone)], now)


def _cut_row(data_root: Path, fault: TreeFault, now: float) -> None:
    with _held_file(data_root, fault) as path:
        with open_plain(path) as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        _keep_aside(data_root, fault, now, data[whole:])
        with open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "wb") as file:
            file.truncate(whole)
            os.fsync(file.fileno())


@contextmanager
def _held_file(data_root: Path, fault: TreeFault) -> Iterator[Path]:
    """Path of a fault's file in its opened folder, which was reached without following links."""
    folder, name = os.path.split(fault.where)
    with held_folder(data_root, folder) as here:
        yield here / name


def _keep_aside(data_root: Path, fault: TreeFault, now: float, data: bytes) -> None:
    """Put bytes that a repair removes from a file into the trash, as `<name>.torn`."""
    name = f"{fault.where}.torn"
    with _held_file(data_root, fault) as path:
        write_atomic(path.with_name(os.path.basename(name)), data)
    _to_trash(data_root, fault, now, [str(data_root / name)])


def _fill_rows(data_root: Path, fault: TreeFault, now: float) -> None:
    with _held_file(data_root, fault) as path:
        with open_plain(path) as file:
            data = file.read()
        width, rows = whole_rows(path)
        with CsvTable(path) as table:
            begin = table.start
        text = rows_text([*row, *[""] * (width - len(row))] for row in rows)
        header, torn = data[:begin], data[data.rfind(b"\n") + 1 :]
        _keep_aside(data_root, fault, now, data)
        write_atomic(path, header + text.encode() + torn)


def _publish(data_root: Path, fault: TreeFault, _: float) -> None:
    path = data_root / fault.where
    publish(path.parent.parent, path.name)


def _copy_parameters(data_root: Path, fault: TreeFault, now: float) -> None:
    folder = data_root / fault.where
    good = good_parameters(data_root, fault.table, fault.index)
    if good is None:
        message = f"{fault.where}: the other copy of the hyper-parameters is gone"
        raise DatabaseError(message)
    content = read_small(good)
    old = [str(folder / name) for name in PARAMETER_FILES if os.path.lexists(folder / name)]
    _to_trash(data_root, fault, now, old)
    with held_folder(data_root, fault.where) as here:
        write_atomic(here / good.name, content)


def _archive_to_trash(data_root: Path, fault: TreeFault, now: float) -> None:
    items = run_items(data_root, fault.table, fault.index)
    move_to_trash(data_root, [item for item in items if item.kind == ARCHIVE_TESTER], now)


def _run_to_trash(data_root: Path, fault: TreeFault, now: float) -> None:
    move_to_trash(data_root, run_items(data_root, fault.table, fault.index), now)


def _set_in_run_file(data_root: Path, fault: TreeFault, changes: dict[str, object]) -> None:
    with _held_file(data_root, fault) as path:
        content = (read_json(path) or {}) | changes
        write_atomic(path, json.dumps(content, indent=1).encode())


def _end_state(data_root: Path, fault: TreeFault, _: float) -> None:
    _set_in_run_file(data_root, fault, {"state": "killed", "reason": "silent for more than a day"})


def _correct_step(data_root: Path, fault: TreeFault, _: float) -> None:
    tail = read_tail((data_root / fault.where).with_name(PROGRESS_FILE))
    _set_in_run_file(data_root, fault, {"time_step": tail.last[TIME_STEP]})


_REPAIRS: dict[str, Callable[[Path, TreeFault, float], None]] = {
    "torn-row": _cut_row,
    "torn-json": _to_trash,
    "torn-params": _copy_parameters,
    "torn-archive": _archive_to_trash,
    "short-rows": _fill_rows,
    "empty-item": _to_trash,
    "temp-file": _to_trash,
    "unpublished": _publish,
    "half-save": _to_trash,
    "orphan": _run_to_trash,
    "stray": _to_trash,
    "stale-state": _end_state,
    "step-differs": _correct_step,
}
