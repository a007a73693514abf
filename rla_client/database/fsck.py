"""Faults in a database's files (`rla fsck`).

Each kind has one check and, if nothing is lost by it, one repair (`fsck_repairs`):

    torn-row      progress.csv or progress.<role>.csv ends in the middle of a row
                                                                 cut off, the torn bytes to the trash
    torn-json     run.json or note.json unreadable               to the trash
    torn-params   parameter.* of one item unreadable             replaced by the copy in another item
    torn-archive  archive_tester entry unreadable                to the trash
    short-rows    rows of one of these too short or too long     short: filled up, the old to the trash
    empty-item    a log folder without anything in it            to the trash
    temp-file     left by a crash, older than an hour            to the trash
    stale-state   running, but nobody wrote it for a day         state becomes `killed`
    step-differs  last time-step of run.json not that of the CSV   run.json corrected
    unpublished   all parts of a sharded checkpoint, without its name   it gets its name
    half-save     parts of a sharded checkpoint, not of all ranks       to the trash
    bad-shard     a sharded checkpoint whose files are not as saved     none
    orphan        items of a run that has no log                 to the trash, but only when named
    stray         something in a day folder that is not an item  to the trash, but only when named
    no-params     a run that has hyper-parameters in no file     none
    lost          rows or files that the run could not keep      none

Runs that are being written are not checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.filesystem.atomic_write import OLD_TEMP_S, TEMP_PREFIX
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    DEFAULT_LOG_TYPES,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    PARTS_FOLDER,
    TIME_STEP,
)
from rla_client.contract.run_file import LIVE_STATES, RUN_FILE
from rla_client.contract.sharded_checkpoint.check import shard_problems
from rla_client.contract.sharded_checkpoint.files import OWN_FOLDER, WHOLE_FILE
from rla_client.contract.sharded_checkpoint.folder import finals_of, read_whole
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole
from rla_client.contract.sharded_checkpoint.status import sharded_status
from rla_client.contract.spool.losses import lost_lines
from rla_client.database.changes.live_runs import live_runs
from rla_client.database.curves.csv_tail import quoted_lines, read_tail
from rla_client.database.curves.progress_csv import PROGRESS_FILE, CsvTable
from rla_client.database.curves.stream_tables import roles_of, table_of
from rla_client.database.json_files import read_json
from rla_client.database.records.record_reader import NOTE_FILE
from rla_client.database.tree.items import (
    Item,
    archive_stem,
    day_items,
    find_days,
    find_tables,
    list_names,
    run_items,
)
from rla_client.run.parameters.hyper_params import printed_args, tracked
from rla_client.run.parameters.parameter_reader import read_parameter_file
from rla_client.run.state.archive_reader import read_archive

PARAMETER_FILES = (f"{HYPARAM_FILE_NAME}.json", f"{HYPARAM_FILE_NAME}.yaml")
OLD_S = 86400.0  # no process will end a run that has been live and silent for longer
CONTINUED = tuple(f"{TEMP_PREFIX}{what}-" for what in ("fetch", "pull"))  # by the next pull
MAX_CHECKED_BYTES = 1 << 30  # of one CSV, for short rows


@dataclass(frozen=True, slots=True)
class TreeFault:
    """One fault.

    Attributes:
        kind: see the module docstring.
        where: path relative to the data root.
        text: what is wrong.
        table: task table.
        index: the run, empty for a stray file.
        repairable: whether `repair` can repair it.
    """

    kind: str
    where: str
    text: str
    table: str
    index: str = ""
    repairable: bool = False


def find_faults(
    data_root: Path, now: float, table: str | None = None, *, hashes: bool = False
) -> list[TreeFault]:
    """All faults of a database, or of one table; with `hashes`, the content of shards is checked, too."""
    found: list[TreeFault] = []
    for name in [table] if table is not None else find_tables(data_root):
        indices: dict[str, set[str]] = {}
        for kind in DEFAULT_LOG_TYPES:
            for day in find_days(data_root, kind, name):
                found += _strays(data_root, kind, name, day, now)
                for item in day_items(data_root, kind, name, day):
                    indices.setdefault(item.index, set()).add(kind)
        for index, kinds in sorted(indices.items()):
            found += _Run(data_root, name, index, kinds, now, hashes).faults()
    return found


def _strays(data_root: Path, kind: str, table: str, day: str, now: float) -> Iterator[TreeFault]:
    folder = data_root / kind / table / day
    known = {os.path.basename(path) for item in day_items(data_root, kind, table, day) for path in item.paths}
    for name in os.listdir(folder):
        where = f"{kind}/{table}/{day}/{name}"
        if name.startswith(TEMP_PREFIX):
            if _is_left(folder / name, now):
                yield TreeFault("temp-file", where, "left by a crash", table, repairable=True)
        elif name not in known and not name.startswith("."):
            is_none = kind == ARCHIVE_TESTER and archive_stem(name) is None
            hint = "no archive_tester entry" if is_none else "no run"
            yield TreeFault("stray", where, hint, table, repairable=True)


def _is_left(path: str | os.PathLike[str], now: float) -> bool:
    """Whether a temp file is left over from a crash; one that no longer exists has been finished."""
    try:
        age = now - os.lstat(path).st_mtime
    except FileNotFoundError:
        return False
    return age > (OLD_S if os.path.basename(path).startswith(CONTINUED) else OLD_TEMP_S)


@dataclass(frozen=True, slots=True)
class _Run:
    """Checks of one run."""

    data_root: Path
    table: str
    index: str
    kinds: set[str]
    now: float
    hashes: bool

    def fault(
        self, kind: str, path: str | os.PathLike[str], text: object, *, repairable: bool = True
    ) -> TreeFault:
        """A fault of a file or folder of the run; the text of an error is used without its path."""
        message = str(text).split(": ", 1)[-1] if isinstance(text, Exception) else str(text)
        where = os.path.relpath(path, self.data_root)
        return TreeFault(kind, where, message, self.table, self.index, repairable)

    def faults(self) -> Iterator[TreeFault]:
        """All faults of the run."""
        items = run_items(self.data_root, self.table, self.index)
        if live_runs(self.data_root, items[:1], self.now):
            return
        if LOG not in self.kinds:
            place = self.data_root / min(self.kinds) / self.table / self.index
            yield self.fault("orphan", place, f"no log; only {', '.join(sorted(self.kinds))}")
        for item in items:
            if item.kind == LOG and not os.listdir(item.paths[0]):
                yield self.fault("empty-item", item.paths[0], "nothing in it")
                return
        for item in items:
            yield from (
                self._of_archive(item) if item.kind == ARCHIVE_TESTER else self._of_folder(item.paths[0])
            )
        if LOG in self.kinds:
            yield from self._of_log(self.data_root / LOG / self.table / self.index)
        if CHECKPOINT in self.kinds:
            folder = self.data_root / CHECKPOINT / self.table / self.index
            yield from self._of_sharded(folder)
            yield from self._of_finals(folder)

    def _of_sharded(self, folder: Path) -> Iterator[TreeFault]:
        for one in sharded_status(folder):
            if one.path.parent == folder:
                continue
            if one.whole or (one.world and not one.missing):
                yield self.fault("unpublished", one.path, "all its parts are there")
            elif not one.waits:  # the agent still copies its parts
                yield self.fault("half-save", one.path, one)
        for above in (folder, folder / PARTS_FOLDER):
            left = [above / name for name in list_names(str(above)) if name.startswith(TEMP_PREFIX)]
            for path in left:
                if path.is_dir() and _is_left(path, self.now):
                    yield self.fault("temp-file", path, "left by a crash")

    def _of_finals(self, folder: Path) -> Iterator[TreeFault]:
        for name in finals_of(folder):
            path = folder / name
            if (path / OWN_FOLDER).is_dir() and note_of_whole(path) is None:  # our own checkpoint, not pruned
                whole = read_whole(path)
                problems = [f"no readable {WHOLE_FILE}, so it is not whole"]
                if whole is not None:
                    problems = list(shard_problems(path, whole, hashes=self.hashes))
                if problems:
                    more = f"; {len(problems) - 3} more" if problems[3:] else ""
                    yield self.fault("bad-shard", path, "; ".join(problems[:3]) + more, repairable=False)

    def _of_archive(self, item: Item) -> Iterator[TreeFault]:
        try:
            if read_archive(item.paths) is None:
                yield self.fault("torn-archive", item.paths[0], "an array file without its JSON")
        except DatabaseError as error:
            yield self.fault("torn-archive", item.paths[0], error)
        except OSError as error:
            yield self.fault("torn-archive", item.paths[0], str(error))

    def _of_folder(self, folder: str) -> Iterator[TreeFault]:
        names = list_names(folder)
        for here, _, files in os.walk(folder):
            for name in files:
                path = os.path.join(here, name)
                if name.startswith(TEMP_PREFIX) and _is_left(path, self.now):
                    yield self.fault("temp-file", path, "left by a crash")
        if any(name.startswith("parameter.") for name in names):
            try:
                read_parameter_file(folder)
            except (DatabaseError, OSError) as error:
                whole = good_parameters(self.data_root, self.table, self.index) is not None
                yield self.fault("torn-params", folder, error, repairable=whole)

    def _of_log(self, folder: Path) -> Iterator[TreeFault]:
        about: dict[str, object] = {}
        for name in (RUN_FILE, NOTE_FILE):
            try:
                content = read_json(folder / name)
            except (DatabaseError, OSError) as error:
                yield self.fault("torn-json", folder / name, error)
                continue
            if name == RUN_FILE:
                about = content or {}
        updated = about.get("updated")
        old = isinstance(updated, int | float) and updated < self.now - OLD_S
        if old and about.get("state") in LIVE_STATES:
            yield self.fault("stale-state", folder / RUN_FILE, "running, but silent for a day")
        if lines := lost_lines(about):
            text = "; ".join(lines).removeprefix("lost: ")
            yield self.fault("lost", folder / RUN_FILE, text, repairable=False)
        if os.path.lexists(folder / PROGRESS_FILE):
            yield from self._of_csv(folder / PROGRESS_FILE, about)
        for role in roles_of(folder):  # other writers have time-steps of their own
            yield from self._of_csv(folder / table_of(PROGRESS_FILE, role), {})
        places = [self.data_root / kind / self.table / self.index for kind in (HYPARAMETER, LOG)]
        if ARCHIVE_TESTER in self.kinds or tracked(self.index) or printed_args(f"{folder}/backup.txt"):
            return
        if not any((place / name).exists() for place in places for name in PARAMETER_FILES):
            yield self.fault("no-params", folder, "no hyper-parameters anywhere", repairable=False)

    def _of_csv(self, path: Path, about: dict[str, object]) -> Iterator[TreeFault]:
        try:
            tail = read_tail(path)
        except (DatabaseError, OSError) as error:
            yield self.fault("short-rows", path, error, repairable=False)
            return
        if tail.torn_bytes:
            yield self.fault("torn-row", path, f"{tail.torn_bytes} bytes of an unfinished row")
        if path.stat().st_size <= MAX_CHECKED_BYTES:
            try:
                width, rows = whole_rows(path)
            except (BrokenFileError, OSError) as error:
                yield self.fault("short-rows", path, error, repairable=False)
                return
            short = sum(len(row) < width for row in rows)
            long = sum(len(row) > width for row in rows)
            if short or long:
                text = f"{short} row(s) with too few cells, {long} with too many"
                yield self.fault("short-rows", path, text, repairable=not long)
        step, noted = tail.last.get(TIME_STEP), about.get("time_step")
        finished = about.get("state") not in (None, *LIVE_STATES)
        if finished and isinstance(step, int | float) and isinstance(noted, int | float) and step != noted:
            text = f"run.json says time-step {noted}, the table {step}"
            yield self.fault("step-differs", path.with_name(RUN_FILE), text)


def whole_rows(path: Path) -> tuple[int, list[list[str]]]:
    """Number of columns of a table, and the cells of its complete rows.

    Raises:
        BrokenFileError: it is not a table.
    """
    with CsvTable(path) as table:
        if not table.has_header:
            return 0, []
        body = table.whole_rows()
        if count := quoted_lines(body):
            raise BrokenFileError(
                os.fspath(path), f"a quote is never closed: the {count} lines behind it are one cell"
            )
        return len(table.columns), [row for row in table.cells(body.replace(b"\0", b"?")) if row]


def good_parameters(data_root: Path, table: str, index: str) -> Path | None:
    """A readable parameter file of a run, from any of its items; None if there is none."""
    for item in run_items(data_root, table, index):
        with suppress(DatabaseError, OSError):
            if item.kind != ARCHIVE_TESTER and read_parameter_file(item.paths[0]) is not None:
                files = (Path(item.paths[0], name) for name in PARAMETER_FILES)
                return next(filter(Path.exists, files))
    return None
