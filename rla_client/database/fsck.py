"""Finding and mending faults of a database's files.

Each kind of fault has one check and, where that cannot lose anything, one way to mend it:

    torn-row      progress.csv ends in the middle of a row          cut off, the torn bytes go to the trash
    torn-json     run.json, note.json, parameter.* unreadable       none (run.json, note.json: to the trash)
    torn-archive  archive_tester entry unreadable                   none
    short-rows    rows of progress.csv with too few or many cells   none
    empty-item    a log folder without anything in it               to the trash
    orphan        items of a run that has no log                    none
    no-params     a run that has hyper-parameters in no file        none
    temp-file     a temp file that a crash left (older than a day)  to the trash
    stray         something in a day folder that is no item         none
    stale-state   run.json says running, but nobody wrote it for a day   state becomes `killed`
    step-differs  run.json and progress.csv disagree on the last time-step   run.json corrected

Runs that are being written are passed over. Mending needs the lock of `changes`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rla_client.database.changes import live_runs, move_to_trash
from rla_client.database.csv_table import TIME_STEP, parse_header, read_tail
from rla_client.database.hyper_params import printed_args, read_archive, read_parameter_file, tracked
from rla_client.database.records import LIVE_STATES, NOTE_FILE, PROGRESS_FILE, RUN_FILE, read_json
from rla_client.database.tree import (
    Item,
    archive_stem,
    day_items,
    find_days,
    find_tables,
    list_names,
    run_items,
)
from rla_client.errors import DatabaseError
from rla_client.layout import ARCHIVE_TESTER, DEFAULT_LOG_TYPES, HYPARAMETER, LOG
from rla_client.storage import TEMP_PREFIX, write_atomic

OLD_S = 86400.0  # a temp file or a live state older than this has nobody who will finish it
MAX_CHECKED_BYTES = 1 << 30  # of one CSV, for short rows


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding.

    Attributes:
        kind: see the module's table.
        where: path relative to the data root.
        text: what is wrong.
        table: task table.
        index: the run, empty for a stray file.
        mendable: whether `mend` can do something.
    """

    kind: str
    where: str
    text: str
    table: str
    index: str = ""
    mendable: bool = False


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
            if now - os.lstat(folder / name).st_mtime > OLD_S:
                yield Fault("temp-file", f"{where}/{name}", "left by a crash", table, mendable=True)
        elif name not in known and not name.startswith("."):
            hint = (
                "no archive_tester entry"
                if kind == ARCHIVE_TESTER and archive_stem(name) is None
                else "no run"
            )
            yield Fault("stray", f"{where}/{name}", hint, table)


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
        )
    for item in items:
        if item.kind == LOG and not os.listdir(item.paths[0]):
            where = _relative(data_root, item.paths[0])
            yield Fault("empty-item", where, "nothing in it", table, index, mendable=True)
            return
    for item in items:
        if item.kind == ARCHIVE_TESTER:
            yield from _archive_faults(data_root, item)
        else:
            yield from _folder_faults(data_root, item, now)
    if LOG in kinds:
        yield from _log_faults(data_root, table, index, now)
        yield from _missing_params(data_root, table, index, kinds)


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
    yield Fault("torn-archive", _relative(data_root, item.paths[0]), text, item.table, item.index)


def _folder_faults(data_root: Path, item: Item, now: float) -> Iterator[Fault]:
    folder = item.paths[0]
    names = list_names(folder)
    for here, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(here, name)
            if name.startswith(TEMP_PREFIX) and now - os.lstat(path).st_mtime > OLD_S:
                where = _relative(data_root, path)
                yield Fault("temp-file", where, "left by a crash", item.table, item.index, mendable=True)
    if any(name.startswith("parameter.") for name in names):
        try:
            read_parameter_file(folder)
        except (DatabaseError, OSError) as error:
            yield Fault(
                "torn-json",
                _relative(data_root, folder),
                str(error).split(": ", 1)[-1],
                item.table,
                item.index,
            )


def _log_faults(data_root: Path, table: str, index: str, now: float) -> Iterator[Fault]:
    folder = data_root / LOG / table / index
    about: dict[str, object] = {}
    for name in (RUN_FILE, NOTE_FILE):
        try:
            content = read_json(folder / name)
        except DatabaseError as error:
            text = str(error).split(": ", 1)[-1]
            yield Fault("torn-json", _relative(data_root, folder / name), text, table, index, mendable=True)
            continue
        if name == RUN_FILE:
            about = content or {}
    updated = about.get("updated")
    if about.get("state") in LIVE_STATES and isinstance(updated, int | float) and now - updated > OLD_S:
        where = _relative(data_root, folder / RUN_FILE)
        yield Fault("stale-state", where, "running, but silent for a day", table, index, mendable=True)
    path = folder / PROGRESS_FILE
    if path.exists():
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
        yield Fault("torn-row", where, f"{tail.torn_bytes} bytes of an unfinished row", *run, mendable=True)
    if path.stat().st_size <= MAX_CHECKED_BYTES:
        bad = _uneven_rows(path)
        if bad:
            yield Fault("short-rows", where, f"{bad} row(s) with too few or too many cells", *run)
    step, noted = tail.last.get(TIME_STEP), about.get("time_step")
    finished = about.get("state") not in {None, *LIVE_STATES}
    if finished and isinstance(step, int | float) and isinstance(noted, int | float) and step != noted:
        text = f"run.json says time-step {noted}, the table {step}"
        yield Fault("step-differs", _relative(data_root, path.with_name(RUN_FILE)), text, *run, mendable=True)


def _uneven_rows(path: Path) -> int:
    import csv

    with path.open("rb") as file:
        header = file.readline()
        if not header.endswith(b"\n"):
            return 0
        width = len(parse_header(path, header))
        body = file.read()
    text = body[: body.rfind(b"\n") + 1].decode("utf-8", "replace").replace("\0", "?")
    rows = csv.reader(line + "\n" for line in text.split("\n"))  # quoted line ends stay inside their cell
    return sum(bool(row) and len(row) != width for row in rows)


def _missing_params(data_root: Path, table: str, index: str, kinds: set[str]) -> Iterator[Fault]:
    folders = [data_root / kind / table / index for kind in (HYPARAMETER, LOG)]
    if ARCHIVE_TESTER in kinds or tracked(index) or printed_args(f"{folders[1]}/backup.txt"):
        return
    if not any(
        (folder / f"parameter.{suffix}").exists() for folder in folders for suffix in ("json", "yaml")
    ):
        yield Fault("no-params", f"{LOG}/{table}/{index}", "no hyper-parameters anywhere", table, index)


def mend(data_root: Path, fault: Fault, now: float) -> None:
    """Mend one fault; the caller holds `changing`.

    Raises:
        KeyError: it is of a kind that cannot be mended.
        OSError: the file could not be changed.
    """
    _MENDERS[fault.kind](data_root, fault, now)


def _to_trash(data_root: Path, fault: Fault, now: float) -> None:
    kind = fault.where.split("/", 1)[0]
    move_to_trash(data_root, [Item(kind, fault.table, fault.index, (str(data_root / fault.where),))], now)


def _cut_row(data_root: Path, fault: Fault, now: float) -> None:
    path = data_root / fault.where
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    torn = path.with_name(f"{path.name}.torn")
    write_atomic(torn, data[whole:])
    relative = os.path.relpath(torn, data_root)
    _to_trash(data_root, Fault(fault.kind, relative, "", fault.table, fault.index), now)
    with path.open("r+b") as file:
        file.truncate(whole)
        os.fsync(file.fileno())


def _set_in_run_file(data_root: Path, fault: Fault, changes: dict[str, object]) -> None:
    path = data_root / fault.where
    content = (read_json(path) or {}) | changes
    write_atomic(path, json.dumps(content, indent=1).encode())


def _end_state(data_root: Path, fault: Fault, _: float) -> None:
    _set_in_run_file(data_root, fault, {"state": "killed", "reason": "silent for more than a day"})


def _correct_step(data_root: Path, fault: Fault, _: float) -> None:
    tail = read_tail((data_root / fault.where).with_name(PROGRESS_FILE))
    _set_in_run_file(data_root, fault, {"time_step": tail.last[TIME_STEP]})


_MENDERS: dict[str, Callable[[Path, Fault, float], None]] = {
    "torn-row": _cut_row,
    "torn-json": _to_trash,
    "empty-item": _to_trash,
    "temp-file": _to_trash,
    "stale-state": _end_state,
    "step-differs": _correct_step,
}
