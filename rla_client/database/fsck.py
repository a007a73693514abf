"""Finding faults of a database's files; `repair` repairs them.

Each kind of fault has one check and, where that loses nothing, one way to repair it:

    torn-row      progress.csv ends in the middle of a row       cut off, the torn bytes to the trash
    torn-json     run.json or note.json unreadable               to the trash
    torn-params   parameter.* of one item unreadable             replaced by the copy in another item
    torn-archive  archive_tester entry unreadable                to the trash
    short-rows    rows of progress.csv too short or too long     short: filled up, the old to the trash
    empty-item    a log folder without anything in it            to the trash
    temp-file     left by a crash, older than a day              to the trash
    stale-state   running, but nobody wrote it for a day         state becomes `killed`
    step-differs  last time-step of run.json not that of the CSV   run.json corrected
    orphan        items of a run that has no log                 to the trash, but only when named
    stray         something in a day folder that is not an item  to the trash, but only when named
    no-params     a run that has hyper-parameters in no file     none

Runs that are being written are passed over.

Repairing the faults that `fsck` finds. What a repairer takes away goes to the trash.

All need the lock of `changes`. Killed in between, the fault is there still, or the repair is done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.files import TEMP_PREFIX, held_folder, open_plain, read_small, write_atomic
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    DEFAULT_LOG_TYPES,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    TIME_STEP,
)
from rla_client.contract.opening import LIVE_STATES, RUN_FILE
from rla_client.contract.parsing import rows_text
from rla_client.database.changes import live_runs, move_to_trash
from rla_client.database.csv_table import parse_header, read_tail
from rla_client.database.records import NOTE_FILE, PROGRESS_FILE, read_json
from rla_client.database.tree import (
    Item,
    archive_stem,
    day_items,
    find_days,
    find_tables,
    list_names,
    run_items,
)
from rla_client.run.hyper_params import printed_args, read_archive, read_parameter_file, tracked

OLD_S = 86400.0  # a temp file or a live state older than this has nobody who will finish it
MAX_CHECKED_BYTES = 1 << 30  # of one CSV, for short rows
ON_REQUEST = frozenset({"orphan", "stray"})  # perhaps somebody's own files: repaired only when named


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding.

    Attributes:
        kind: see the module's table.
        where: path relative to the data root.
        text: what is wrong.
        table: task table.
        index: the run, empty for a stray file.
        repairable: whether `repair` can do something.
    """

    kind: str
    where: str
    text: str
    table: str
    index: str = ""
    repairable: bool = False


def find_faults(data_root: Path, now: float, table: str | None = None) -> list[Fault]:
    """All faults of a database, or of one table."""
    found: list[Fault] = []
    for name in [table] if table is not None else find_tables(data_root):
        indices: dict[str, set[str]] = {}
        for kind in DEFAULT_LOG_TYPES:
            for day in find_days(data_root, kind, name):
                found += _strays(data_root, kind, name, day, now)
                for item in day_items(data_root, kind, name, day):
                    indices.setdefault(item.index, set()).add(kind)
        for index, kinds in sorted(indices.items()):
            found += _run_faults(data_root, name, index, (kinds, now))
    return found


def _strays(data_root: Path, kind: str, table: str, day: str, now: float) -> Iterator[Fault]:
    folder = data_root / kind / table / day
    known = {os.path.basename(path) for item in day_items(data_root, kind, table, day) for path in item.paths}
    where = f"{kind}/{table}/{day}"
    for name in os.listdir(folder):
        if name.startswith(TEMP_PREFIX):
            if _is_old(folder / name, now):
                yield Fault("temp-file", f"{where}/{name}", "left by a crash", table, repairable=True)
        elif name not in known and not name.startswith("."):
            hint = (
                "no archive_tester entry"
                if kind == ARCHIVE_TESTER and archive_stem(name) is None
                else "no run"
            )
            yield Fault("stray", f"{where}/{name}", hint, table, repairable=True)


def _run_faults(data_root: Path, table: str, index: str, about: tuple[set[str], float]) -> Iterator[Fault]:
    kinds, now = about
    items = run_items(data_root, table, index)
    if live_runs(data_root, items[:1], now):
        return
    if LOG not in kinds:
        yield Fault(
            "orphan",
            f"{min(kinds)}/{table}/{index}",
            f"no log; only {', '.join(sorted(kinds))}",
            table,
            index,
            repairable=True,
        )
    for item in items:
        if item.kind == LOG and not os.listdir(item.paths[0]):
            where = _relative(data_root, item.paths[0])
            yield Fault("empty-item", where, "nothing in it", table, index, repairable=True)
            return
    for item in items:
        if item.kind == ARCHIVE_TESTER:
            yield from _archive_faults(data_root, item)
        else:
            yield from _folder_faults(data_root, item, now)
    if LOG in kinds:
        yield from _log_faults(data_root, table, index, now)
        yield from _missing_params(data_root, table, index, kinds)


def _is_old(path: str | os.PathLike[str], now: float) -> bool:
    """Whether nobody will finish a file; one that is gone by now has been finished."""
    try:
        return now - os.lstat(path).st_mtime > OLD_S
    except FileNotFoundError:
        return False


def _relative(data_root: Path, path: str | os.PathLike[str]) -> str:
    return os.path.relpath(path, data_root)


def _archive_faults(data_root: Path, item: Item) -> Iterator[Fault]:
    try:
        if read_archive(item.paths) is not None:
            return
        text = "an array file without its JSON"
    except DatabaseError as error:
        text = str(error).split(": ", 1)[-1]
    except OSError as error:
        text = str(error)
    yield Fault(
        "torn-archive", _relative(data_root, item.paths[0]), text, item.table, item.index, repairable=True
    )


def _folder_faults(data_root: Path, item: Item, now: float) -> Iterator[Fault]:
    folder = item.paths[0]
    names = list_names(folder)
    for here, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(here, name)
            if name.startswith(TEMP_PREFIX) and _is_old(path, now):
                where = _relative(data_root, path)
                yield Fault("temp-file", where, "left by a crash", item.table, item.index, repairable=True)
    if any(name.startswith("parameter.") for name in names):
        try:
            read_parameter_file(folder)
        except (DatabaseError, OSError) as error:
            text = str(error).split(": ", 1)[-1]
            whole = good_parameters(data_root, item.table, item.index) is not None
            yield Fault(
                "torn-params", _relative(data_root, folder), text, item.table, item.index, repairable=whole
            )


def _log_faults(data_root: Path, table: str, index: str, now: float) -> Iterator[Fault]:
    folder = data_root / LOG / table / index
    about: dict[str, object] = {}
    for name in (RUN_FILE, NOTE_FILE):
        try:
            content = read_json(folder / name)
        except (DatabaseError, OSError) as error:
            text = str(error).split(": ", 1)[-1]
            yield Fault("torn-json", _relative(data_root, folder / name), text, table, index, repairable=True)
            continue
        if name == RUN_FILE:
            about = content or {}
    updated = about.get("updated")
    if about.get("state") in LIVE_STATES and isinstance(updated, int | float) and now - updated > OLD_S:
        where = _relative(data_root, folder / RUN_FILE)
        yield Fault("stale-state", where, "running, but silent for a day", table, index, repairable=True)
    path = folder / PROGRESS_FILE
    if os.path.lexists(path):
        yield from _csv_faults(data_root, path, (table, index), about)


def _csv_faults(
    data_root: Path, path: Path, run: tuple[str, str], about: dict[str, object]
) -> Iterator[Fault]:
    where = _relative(data_root, path)
    try:
        tail = read_tail(path)
    except (DatabaseError, OSError) as error:
        yield Fault("short-rows", where, str(error).split(": ", 1)[-1], *run)
        return
    if tail.torn_bytes:
        yield Fault("torn-row", where, f"{tail.torn_bytes} bytes of an unfinished row", *run, repairable=True)
    if path.stat().st_size <= MAX_CHECKED_BYTES:
        try:
            short, long = uneven_rows(path)
        except (BrokenFileError, OSError) as error:
            yield Fault("short-rows", where, str(error).split(": ", 1)[-1], *run)
            return
        if short or long:
            text = f"{short} row(s) with too few cells, {long} with too many"
            yield Fault("short-rows", where, text, *run, repairable=not long)
    step, noted = tail.last.get(TIME_STEP), about.get("time_step")
    finished = about.get("state") not in (None, *LIVE_STATES)
    if finished and isinstance(step, int | float) and isinstance(noted, int | float) and step != noted:
        text = f"run.json says time-step {noted}, the table {step}"
        yield Fault(
            "step-differs", _relative(data_root, path.with_name(RUN_FILE)), text, *run, repairable=True
        )


def uneven_rows(path: Path) -> tuple[int, int]:
    """How many whole rows of a table have too few and too many cells."""
    width, rows = whole_rows(path)
    lengths = [len(row) for row in rows]
    return sum(length < width for length in lengths), sum(length > width for length in lengths)


def whole_rows(path: Path) -> tuple[int, list[list[str]]]:
    """Columns of a table, and the cells of its rows without the header and an unfinished last one.

    Raises:
        BrokenFileError: it is not a table.
    """
    import csv

    from rla_client.contract.parsing import split_rows

    with open_plain(path) as file:
        header = file.readline()
        if not header.endswith(b"\n"):
            return 0, []
        width = len(parse_header(path, header))
        body = file.read()
    text = body[: body.rfind(b"\n") + 1].decode("utf-8", "replace").replace("\0", "?")
    try:
        return width, [row for row in split_rows(text) if row]
    except csv.Error as error:
        raise BrokenFileError(os.fspath(path), f"no CSV ({error})") from error


def good_parameters(data_root: Path, table: str, index: str) -> Path | None:
    """A readable parameter file of a run, in whatever item it lies."""
    for item in run_items(data_root, table, index):
        with suppress(DatabaseError, OSError):
            if item.kind != ARCHIVE_TESTER and read_parameter_file(item.paths[0]) is not None:
                names = [f"{HYPARAM_FILE_NAME}.{suffix}" for suffix in ("json", "yaml")]
                return next(Path(item.paths[0], name) for name in names if Path(item.paths[0], name).exists())
    return None


def _missing_params(data_root: Path, table: str, index: str, kinds: set[str]) -> Iterator[Fault]:
    folders = [data_root / kind / table / index for kind in (HYPARAMETER, LOG)]
    if ARCHIVE_TESTER in kinds or tracked(index) or printed_args(f"{folders[1]}/backup.txt"):
        return
    if not any(
        (folder / f"parameter.{suffix}").exists() for folder in folders for suffix in ("json", "yaml")
    ):
        yield Fault("no-params", f"{LOG}/{table}/{index}", "no hyper-parameters anywhere", table, index)


def repair(data_root: Path, fault: Fault, now: float) -> None:
    """Repair one fault; the caller holds `changing`.

    Raises:
        KeyError: it is of a kind that cannot be repaired.
        OSError: the file could not be changed.
    """
    _REPAIRS[fault.kind](data_root, fault, now)


def _to_trash(data_root: Path, fault: Fault, now: float, paths: Sequence[str] = ()) -> None:
    kind = fault.where.split("/", 1)[0]
    gone = tuple(paths) or (str(data_root / fault.where),)
    move_to_trash(data_root, [Item(kind, fault.table, fault.index, gone)], now)


def _cut_row(data_root: Path, fault: Fault, now: float) -> None:
    with _held_file(data_root, fault) as path:
        with open_plain(path) as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        _keep_aside(data_root, fault, now, data[whole:])
        with open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "wb") as file:
            file.truncate(whole)
            os.fsync(file.fileno())


@contextmanager
def _held_file(data_root: Path, fault: Fault) -> Iterator[Path]:
    """The file of a fault, in the very folder that the data root has now; no link leads there."""
    folder, name = os.path.split(fault.where)
    with held_folder(data_root, folder) as here:
        yield here / name


def _keep_aside(data_root: Path, fault: Fault, now: float, data: bytes) -> None:
    """Put bytes that a repair takes out of a file into the trash, beside its name."""
    name = f"{fault.where}.torn"
    with _held_file(data_root, fault) as path:
        write_atomic(path.with_name(os.path.basename(name)), data)
    _to_trash(data_root, fault, now, [str(data_root / name)])


def _fill_rows(data_root: Path, fault: Fault, now: float) -> None:
    with _held_file(data_root, fault) as path:
        with open_plain(path) as file:
            data = file.read()
        width, rows = whole_rows(path)
        text = rows_text([*row, *[""] * (width - len(row))] for row in rows)
        header, torn = data[: data.find(b"\n") + 1], data[data.rfind(b"\n") + 1 :]
        _keep_aside(data_root, fault, now, data)
        write_atomic(path, header + text.encode() + torn)


def _copy_parameters(data_root: Path, fault: Fault, now: float) -> None:
    folder = data_root / fault.where
    good = good_parameters(data_root, fault.table, fault.index)
    if good is None:
        message = f"{fault.where}: the other copy of the hyper-parameters is gone"
        raise DatabaseError(message)
    content = read_small(good)
    names = [f"{HYPARAM_FILE_NAME}.{suffix}" for suffix in ("json", "yaml")]
    _to_trash(data_root, fault, now, [str(folder / name) for name in names if os.path.lexists(folder / name)])
    with held_folder(data_root, fault.where) as here:
        write_atomic(here / good.name, content)


def _archive_to_trash(data_root: Path, fault: Fault, now: float) -> None:
    items = run_items(data_root, fault.table, fault.index)
    move_to_trash(data_root, [item for item in items if item.kind == ARCHIVE_TESTER], now)


def _run_to_trash(data_root: Path, fault: Fault, now: float) -> None:
    move_to_trash(data_root, run_items(data_root, fault.table, fault.index), now)


def _set_in_run_file(data_root: Path, fault: Fault, changes: dict[str, object]) -> None:
    with _held_file(data_root, fault) as path:
        content = (read_json(path) or {}) | changes
        write_atomic(path, json.dumps(content, indent=1).encode())


def _end_state(data_root: Path, fault: Fault, _: float) -> None:
    _set_in_run_file(data_root, fault, {"state": "killed", "reason": "silent for more than a day"})


def _correct_step(data_root: Path, fault: Fault, _: float) -> None:
    tail = read_tail((data_root / fault.where).with_name(PROGRESS_FILE))
    _set_in_run_file(data_root, fault, {"time_step": tail.last[TIME_STEP]})


_REPAIRS: dict[str, Callable[[Path, Fault, float], None]] = {
    "torn-row": _cut_row,
    "torn-json": _to_trash,
    "torn-params": _copy_parameters,
    "torn-archive": _archive_to_trash,
    "short-rows": _fill_rows,
    "empty-item": _to_trash,
    "temp-file": _to_trash,
    "orphan": _run_to_trash,
    "stray": _to_trash,
    "stale-state": _end_state,
    "step-differs": _correct_step,
}
