"""Scan of a data root for the files of its items.

It goes folder by folder (a generator, so that the worker serves hints in between) and visits only files of
items: `<kind>/<table>/YYYY/MM/DD/<name>/…`, the archive_tester files of that place, the same below `arc/`,
and on request this machine's parts of sharded checkpoints that are spread over several. `run.json` in the
item's log folder (`run.part.<machine>.json` for a part of another machine's run) names its machine and state.
A folder that cannot be listed is skipped and noted in `Scanner.unread`: its content is unknown, so nobody may
conclude that it is gone.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.copy_modes import folder_copy_mode
from rla_agent.replicate.file_state import Local
from rla_agent.replicate.worker.read_faults import ScanError, Unread, unread
from rla_agent.replicate.worker.run_json import MAX_RUN_JSON_BYTES, ItemRun, read_run
from rla_agent.replicate.worker.source_file import local_state
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    ARCHIVED_TABLE,
    CHECKPOINT,
    DEFAULT_LOG_TYPES,
    JOBS_FOLDER,
    LOG,
    OWN_NAMES,
    PARTS_FOLDER,
)
from rla_client.contract.run_index import RunIndex
from rla_client.contract.run_part import part_machine
from rla_client.contract.sharded_checkpoint.files import (
    OWN_FOLDER,
    PART_FILE,
    is_only_of_the_making,
    parse_parts_name,
)
from rla_client.contract.text.terminal_text import printable

if TYPE_CHECKING:
    import pathspec


MAX_DEPTH: Final = 64  # of folders below an item
_DATE_PARTS: Final = 4  # YYYY, MM, DD, name
_TEMP: Final = os.fsencode(TEMP_PREFIX)
_SUFFIXES: Final = (".pkl", ".json", ".pt")
_STORES: Final = frozenset(
    {b".objects", b".rla", JOBS_FOLDER.encode()}
)  # local to this machine, beside the tables
_OWN: Final = frozenset(map(os.fsencode, OWN_NAMES))  # the same, within items
_MAKING: Final = os.fsencode(PARTS_FOLDER)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class ScanScope:
    """The part of a database that is replicated.

    Attributes:
        host: only items whose run.json names it; empty: all items.
        kinds: data kinds.
        ignore: patterns in the manner of .gitignore, against paths below the data root.
        max_bytes: larger files stay here; 0: no limit.
        off: items whose run switched replication off.
    """

    host: str
    kinds: tuple[str, ...] = DEFAULT_LOG_TYPES
    ignore: pathspec.PathSpec[pathspec.Pattern] | None = None
    max_bytes: int = 0
    off: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder with the files in it that are in scope. `path`, `item`: below the data root.

    `mode`: permission bits that its copies get; None: unknown. `shared`: it has several items, or
    archives of such. `partial`: it has more files, which could not be read.
    """

    path: bytes
    kind: str
    item: bytes
    live: bool
    files: dict[bytes, Local]
    mode: int | None = None
    partial: bool = False

    @property
    def shared(self) -> bool:
        """Whether it has more than one item."""
        return not self.item or self.kind == ARCHIVE_TESTER


class Scanner:
    """Scans one data root.

    Attributes:
        unread: folders that could not be read completely at the last scan, and why.
        left_out: item → a file of its saves in the making that is not in scope.
    """

    def __init__(self, root: bytes, scope: ScanScope, *, making: bool = False) -> None:
        """`making`: include this machine's parts of sharded checkpoints in the making."""
        self.root = root
        self.scope = scope
        self._making = making
        self._runs: dict[str, ItemRun | None] = {}
        self.unread: dict[bytes, Unread] = {}
        self.left_out: dict[bytes, bytes] = {}
        self._jobs: dict[tuple[bytes, int, int], bool] = {}  # name, inode, mtime of a job's file → is it sent

    def everything(self) -> Iterator[Folder]:
        """Every folder of every item in scope, and those above them.

        Raises:
            ScanError: the data root cannot be read, or this process is short of descriptors or memory.
        """
        self._check_root()
        self._runs.clear()
        before = dict(self.unread)
        for prefix in ("", ARCHIVED_TABLE + "/"):
            for kind in self.scope.kinds:
                yield from self._tables(os.fsencode(prefix + kind), kind, 0)
        for path, why in before.items():
            if self.unread.get(path) is why:
                del self.unread[path]  # not met in this scan: it is gone

    def _check_root(self) -> None:
        name = printable(os.fsdecode(self.root))
        try:
            found = os.stat(self.root)
        except FileNotFoundError:
            raise ScanError(f"the data root {name} is not there") from None
        except OSError as error:
            raise ScanError(f"the data root {name} cannot be read: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode):
            raise ScanError(f"the data root {name} is not a folder")

    def item(self, item: str) -> Iterator[Folder]:
        """The folders of one item, `table/YYYY/MM/DD/name`."""
        for kind in self.scope.kinds:
            path = os.fsencode(f"{kind}/{item}")
            if kind != ARCHIVE_TESTER and self._wanted(item):
                yield from self._inside(path, kind, path, 0)

    def archives(self, item: str) -> Iterator[Folder]:
        """The archive_tester files of one item: their folder is shared, so each comes alone."""
        for suffix in _SUFFIXES if ARCHIVE_TESTER in self.scope.kinds else ():
            path = os.fsencode(f"{ARCHIVE_TESTER}/{item}{suffix}")
            local = self._look(path)
            if local is not None and self._wanted(item) and not self._ignored(path):
                folder, _, name = path.rpartition(b"/")
                yield Folder(folder, ARCHIVE_TESTER, folder, live=False, files={name: local})

    def jobs(self) -> Iterator[Folder]:
        """Rank 0's file about each job's run here, for ranks of machines that share only the master."""
        path, files = JOBS_FOLDER.encode(), dict[bytes, Local]()
        for entry, folder in self._entries(path, 0) or ():
            if not folder and not entry.name.startswith(_TEMP):
                self._add(files, path, entry)
        own = {name: local for name, local in files.items() if self._job_goes(path + b"/" + name, local)}
        self._jobs = {name: goes for name, goes in self._jobs.items() if name[0] in files}
        if own:
            yield self._folder(path, LOG, path, own, live=False)

    def _job_goes(self, path: bytes, local: Local) -> bool:
        """Whether a job's file is of a run of this data root that is replicated."""
        key = os.path.basename(path), local.ino, local.mtime_ns
        if key not in self._jobs:
            run: object = None
            with suppress(OSError, ValueError, RecursionError, AttributeError):
                told = json.loads(read_small(os.fsdecode(os.path.join(self.root, path)), MAX_RUN_JSON_BYTES))
                run = None if told.get("relayed") else told.get("opening")
            goes = isinstance(run, dict) and run.get("replicate", True) is not False
            self._jobs[key] = goes and isinstance(run, dict) and not (run.get("offline") or run.get("master"))
        return self._jobs[key]

    def problems(self) -> list[str]:
        """Why sharded checkpoints of several machines stay incomplete, in words."""
        found = sorted(self.left_out.values())
        there = next((path for path in found if os.path.lexists(os.path.join(self.root, path))), None)
        if there is None:
            return []
        what = (
            f"{os.fsdecode(there)} is not sent (agent.replicate, replicate_ignore, replicate_max_file_bytes)"
        )
        return [f"{what}: without it its checkpoint does not become whole on the master"]

    def one(self, path: bytes) -> Folder | None:
        """The folder that holds the file `path` (below the data root), with that file only."""
        parts = path.split(b"/")
        ours = any(part.startswith(_TEMP) or part in _OWN for part in parts)
        if ours or (len(parts) > 1 and parts[1] in _STORES):
            return None
        if len(parts) == _DATE_PARTS + 2 and parts[0] == os.fsencode(ARCHIVE_TESTER):
            item = _without_suffix(os.fsdecode(b"/".join(parts[1:])))
            return next((one for one in self.archives(item) if parts[-1] in one.files), None)
        for end in range(_DATE_PARTS + 2, len(parts)):
            found = self.index(parts[:end])
            if found is not None:
                kind, item = found
                goes = kind in self.scope.kinds and self._wanted(item) and not self._ignored(path)
                local = self._look(path) if goes else None
                if local is None:
                    return None
                live = self._live(item)
                return Folder(b"/".join(parts[:-1]), kind, b"/".join(parts[:end]), live, {parts[-1]: local})
        return None

    def run(self, item: str) -> ItemRun | None:
        """run.json of an item, read again when it has changed; None without a valid one.

        Where only a part of a run is here, its file counts; of several, that of this host.

        Raises:
            ScanError: this process is short of descriptors or memory.
        """
        folder = os.fsencode(f"{LOG}/{item}")
        path = os.path.join(self.root, folder, b"run.json")
        try:
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                return self._part(item, os.path.join(self.root, folder))
            stamp = (found.st_ino, found.st_mtime_ns)
            run = self._runs.get(item)
            if run is None or run.stamp != stamp:
                run = self._runs[item] = read_run(path, stamp)
        except OSError as error:
            self._runs.pop(item, None)
            self._note(folder, b"run.json", error)
            return None
        return run

    def _part(self, item: str, folder: bytes) -> ItemRun | None:
        """Parse the file of a part.

        Raises:
            OSError: it, or its folder, cannot be read.
        """
        parts = []
        for name in sorted(name for name in os.listdir(folder) if part_machine(os.fsdecode(name))):
            path = os.path.join(folder, name)
            found = os.lstat(path)
            stamp, known = (found.st_ino, found.st_mtime_ns), self._runs.get(item)
            part = known if known is not None and known.stamp == stamp else read_run(path, stamp)
            parts += [] if part is None else [part]
        run = next((part for part in parts if part.host == self.scope.host), parts[0] if parts else None)
        if run is not None:
            self._runs[item] = run
        return run

    def _tables(self, path: bytes, kind: str, depth: int) -> Iterator[Folder]:
        files: dict[bytes, Local] = {}
        entries = self._entries(path, depth)
        if entries is None:
            return
        for entry, folder in entries:
            if entry.name.startswith(_TEMP) or (depth == 0 and entry.name in _STORES):
                continue
            inner = path + b"/" + entry.name
            if folder:
                found = self.index(inner.split(b"/"))
                if found is None:
                    yield from self._tables(inner, kind, depth + 1)
                elif kind != ARCHIVE_TESTER and self._wanted(found[1]):
                    yield from self._inside(inner, kind, inner, 0)
            elif kind == ARCHIVE_TESTER and self._archive(inner):
                self._add(files, path, entry)
        yield self._folder(path, kind, path if files else b"", files, live=False)

    def _archive(self, path: bytes) -> bool:
        found = self.index(path.split(b"/"))
        return found is not None and self._wanted(_without_suffix(found[1]))

    def _inside(self, path: bytes, kind: str, item: bytes, depth: int) -> Iterator[Folder]:
        files: dict[bytes, Local] = {}
        inner = []
        entries = self._entries(path, depth)
        if entries is None:
            return
        for entry, folder in entries:
            if entry.name.startswith(_TEMP) or entry.name in _OWN:
                continue
            if folder:
                inner.append(path + b"/" + entry.name)
            else:
                self._add(files, path, entry)
        yield self._folder(path, kind, item, files, live=self._live(item_name(item)))
        for below in inner:
            yield from self._inside(below, kind, item, depth + 1)
        if self._making and path == item:
            if kind == CHECKPOINT:
                yield from self._parts(path + b"/" + _MAKING, item, depth + 1)
            elif kind == LOG and CHECKPOINT not in self.scope.kinds:
                self._see_unsent(os.fsencode(CHECKPOINT) + item.removeprefix(os.fsencode(LOG)))

    def _see_unsent(self, item: bytes) -> None:
        """Whether there are saves in the making where no checkpoints are in scope."""
        above = item + b"/" + _MAKING
        with suppress(OSError):
            for name in os.listdir(os.path.join(self.root, above)):
                told = above + b"/" + name + b"/" + os.fsencode(PART_FILE)
                if os.path.lexists(os.path.join(self.root, told)):
                    self.left_out[item] = told

    def _parts(self, path: bytes, item: bytes, depth: int) -> Iterator[Folder]:
        """Saves in the making of which all of this machine's part is here, and others are elsewhere."""
        for save, is_folder in self._entries(path, depth) or ():
            here = path + b"/" + save.name
            told = os.path.join(self.root, here, os.fsencode(PART_FILE))
            if not is_folder or parse_parts_name(os.fsdecode(save.name)) is None or not os.path.lexists(told):
                continue
            for folder in (here, here + b"/" + os.fsencode(OWN_FOLDER)):
                files: dict[bytes, Local] = {}
                for entry, is_inner in self._entries(folder, depth + 1) or ():
                    own = entry.name.startswith(_TEMP) or is_only_of_the_making(os.fsdecode(entry.name))
                    if not is_inner and not own:
                        self._add(files, folder, entry)
                        if entry.name not in files and folder not in self.unread:
                            self.left_out[item] = folder + b"/" + entry.name
                yield self._folder(folder, CHECKPOINT, item, files, live=self._live(item_name(item)))

    def _folder(
        self, path: bytes, kind: str, item: bytes, files: dict[bytes, Local], *, live: bool
    ) -> Folder:
        mode = None
        with suppress(OSError):
            mode = folder_copy_mode(os.path.join(self.root, path))
        return Folder(path, kind, item, live, files, mode, partial=path in self.unread)

    def _entries(self, path: bytes, depth: int) -> list[tuple[os.DirEntry[bytes], bool]] | None:
        """A folder's entries and whether each is a folder; None where it cannot be listed."""
        if depth > MAX_DEPTH:
            self.unread[path] = Unread(f"nested more than {MAX_DEPTH} folders deep", "move it further up")
            return None
        try:
            with os.scandir(os.path.join(self.root, path)) as found:
                entries = [(entry, entry.is_dir(follow_symlinks=False)) for entry in found]
        except OSError as error:
            if error.errno in _GONE:
                self.unread.pop(path, None)
                return []
            self.unread[path] = unread(error)
            return None
        self.unread.pop(path, None)
        return entries

    def _add(self, files: dict[bytes, Local], folder: bytes, entry: os.DirEntry[bytes]) -> None:
        if self._ignored(folder + b"/" + entry.name):
            return
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._note(folder, entry.name, error)
            return
        if self._goes(found):
            files[entry.name] = local_state(found)

    def _note(self, folder: bytes, name: bytes, error: OSError) -> None:
        """Note a file that cannot be read, unless it is just gone."""
        if error.errno not in _GONE:
            why = unread(error)
            self.unread[folder] = replace(why, reason=f"{printable(os.fsdecode(name))} in it {why.reason}")

    def _look(self, path: bytes) -> Local | None:
        try:
            found = os.lstat(os.path.join(self.root, path))
        except OSError:
            return None
        return local_state(found) if self._goes(found) else None

    def _goes(self, found: os.stat_result) -> bool:
        small = not self.scope.max_bytes or found.st_size <= self.scope.max_bytes
        return small and stat.S_ISREG(found.st_mode)

    def _wanted(self, item: str) -> bool:
        if item in self.scope.off:
            return False
        run = self.run(item)  # read again where it has changed: whether the item is live depends on it
        return not self.scope.host or (run is not None and run.goes and run.host == self.scope.host)

    def _live(self, item: str) -> bool:
        run = self._runs.get(item) or self.run(item)
        return run is not None and run.live

    def _ignored(self, path: bytes) -> bool:
        return self.scope.ignore is not None and self.scope.ignore.match_file(os.fsdecode(path))

    @staticmethod
    def index(parts: list[bytes]) -> tuple[str, str] | None:
        """(kind, `table/YYYY/MM/DD/name`) when the parts are an item's folder below the data root."""
        inner = parts[1:] if parts[0] == os.fsencode(ARCHIVED_TABLE) else parts
        date = os.fsdecode(b"/".join(inner[-_DATE_PARTS:]))
        if len(inner) < _DATE_PARTS + 2 or RunIndex.parse(date) is None:
            return None
        return os.fsdecode(inner[0]), os.fsdecode(b"/".join(inner[1:]))


def _without_suffix(item: str) -> str:
    """The item of an archive_tester file."""
    for suffix in _SUFFIXES:
        item = item.removesuffix(suffix)
    return item


def item_name(item: bytes) -> str:
    """`table/YYYY/MM/DD/name` of an item's folder."""
    parts = item.split(b"/")
    return os.fsdecode(b"/".join(parts[2 if parts[0] == os.fsencode(ARCHIVED_TABLE) else 1 :]))
