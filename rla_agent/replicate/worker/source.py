"""The local side: which files of a data root belong to which item, and reading them; never through a link.

A look at everything goes folder by folder (a generator, so that the worker serves hints in between). Only
files of items are seen: `<kind>/<table>/YYYY/MM/DD/<name>/…`, the archive_tester files of that place, and
the same below `arc/`. `run.json` in the item's log folder says whose it is and whether it lives. A folder
that cannot be listed is left out and noted in `Scanner.unread`: nothing is known of what it holds, so
nobody may conclude that it is gone.

`open_beneath` uses openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), so that a folder that is swapped
for a link between the look and the open cannot lead outside; where the kernel has no openat2, one
openat with O_NOFOLLOW per component. A `Source` hashes what is read of it in order. `Committed` is the
agent's word on the outputs that it writes.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import sqlite3
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.target import UnreadableError
from rla_agent.replicate.worker.plan import Local, Owned, Record, copy_mode
from rla_client.contract.errors import BrokenFileError, RlaError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.filesystem.plain_files import READ_FLAGS, read_small, sqlite_address
from rla_client.contract.filesystem.safe_paths import walk, walk_root
from rla_client.contract.layout import ARCHIVE_TESTER, ARCHIVED_TABLE, DEFAULT_LOG_TYPES, LOG, OWN_NAMES
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.run_file import LIVE_STATES
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.terminal_text import printable

if TYPE_CHECKING:
    import pathspec

EDGE_BYTES: Final = 4096  # of the head and of the tail, hashed before each append
READ_BYTES: Final = 4 << 20
_OPENAT2: Final = 437
_RESOLVE: Final = 0x04 | 0x08  # RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH
SILENT_S: Final = 180.0  # a run that says `running` and was not heard of for so long is taken for dead
MAX_RUN_JSON_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64  # of folders below an item
_DATE_PARTS: Final = 4  # YYYY, MM, DD, name
_TEMP: Final = os.fsencode(TEMP_PREFIX)
_SUFFIXES: Final = (".pkl", ".json", ".pt")
_STORES: Final = frozenset({b".objects", b".rla", b".rla-jobs"})  # of this machine alone, beside the tables
_OWN: Final = frozenset(map(os.fsencode, OWN_NAMES))  # the same, within items
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # this process's, no file's fault
WAYS_OUT: Final = {
    errno.ENAMETOOLONG: "its path is too long: move it to a shorter one",
    errno.EACCES: "let the agent's user read it (chmod, chown)",
    errno.EPERM: "let the agent's user read it (chmod, chown)",
    errno.ELOOP: "a link there leads in a circle: replace it with a file or folder",
    errno.EINVAL: "replace it with a regular file",
    errno.ESTALE: "mount its file server again",
}
MAX_REMEMBERED: Final = 50_000  # outputs in memory; agent.db has the rest
_OUTPUT: Final = "SELECT generation, size, final FROM outputs WHERE path = ? ORDER BY generation DESC LIMIT 1"
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_libc = ctypes.CDLL(None, use_errno=True)


def folder_copy_mode(path: bytes, dir_fd: int | None = None) -> int:
    """Permission bits of copies of a folder; the owner can work in them.

    A kind may be a link to another disk, and a link's own mode is open to all: the folder itself is asked.

    Raises:
        OSError: it is not there.
    """
    return os.stat(path, dir_fd=dir_fd).st_mode & 0o777 | 0o700


def local_state(found: os.stat_result) -> Local:
    """What identifies a version of a file, and its permissions."""
    mode = copy_mode(found.st_mode)
    return Local(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, mode)


def open_beneath(root: int, path: bytes) -> int:
    """Open a regular file for reading below the folder descriptor `root`.

    Raises:
        OSError: it is not there, is not a regular file, or a link lies on the way (ELOOP).
    """
    kind, _, below = path.partition(b"/")
    try:
        folder = walk_root(root, [kind] if below else [])  # the kind may lie on another disk
    except UnsafeNameError as error:
        raise OSError(errno.EXDEV, "leaves the data root", os.fsdecode(path)) from error
    with closing_fd(folder):
        descriptor = _open_strictly(folder, below or kind)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fsdecode(path))
    return descriptor


def _open_strictly(root: int, path: bytes) -> int:
    how = struct.pack("=QQQ", READ_FLAGS, 0, _RESOLVE)
    descriptor = int(_libc.syscall(_OPENAT2, root, ctypes.c_char_p(path), how, len(how)))
    if descriptor >= 0:
        return descriptor
    number = ctypes.get_errno()
    if number not in {errno.ENOSYS, errno.EPERM}:
        raise OSError(number, os.strerror(number), os.fsdecode(path))
    *folders, name = path.split(b"/")
    with closing_fd(walk(root, folders)) as folder:
        return os.open(name, READ_FLAGS, dir_fd=folder)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 and CRC-32 of a file's first bytes."""

    sha256: bytes
    crc: int
    size: int


class Source:
    """An open file and the running checksums of what was read of it in order."""

    def __init__(self, root: int, path: bytes) -> None:
        self._root = root
        self._path = path
        self.descriptor = open_beneath(root, path)
        self.local = local_state(os.fstat(self.descriptor))
        self._sha = hashlib.sha256()
        self._crc = 0
        self._at = 0

    def read(self, offset: int, count: int) -> bytes:
        """Bytes of the file; those from where the checksums end are added to them.

        Raises:
            UnreadableError: the disk or file server gave an error.
        """
        try:
            data = os.pread(self.descriptor, count, offset)
        except OSError as error:
            raise UnreadableError(self._path, error) from error
        if offset <= self._at < offset + len(data):
            more = memoryview(data)[self._at - offset :]
            self._sha.update(more)
            self._crc = zlib.crc32(more, self._crc)
            self._at += len(more)
        return data

    def skip_to(self, offset: int) -> None:
        """Add the bytes before `offset` to the checksums."""
        while self._at < offset and self.read(self._at, min(READ_BYTES, offset - self._at)):
            pass

    def crc_of(self, size: int) -> int:
        """CRC-32 of the first `size` bytes, beside the running checksums."""
        crc = at = 0
        while at < size and (data := os.pread(self.descriptor, min(READ_BYTES, size - at), at)):
            crc = zlib.crc32(data, crc)
            at += len(data)
        return crc

    def fingerprint(self, size: int) -> Fingerprint:
        """Of the first `size` bytes, or fewer where the file ends; none beyond were read in order before."""
        self.skip_to(size)
        return Fingerprint(self._sha.digest(), self._crc, self._at)

    def unchanged(self, *, may_grow: bool) -> bool:
        """Whether the path still leads to this file, as it was when it was opened."""
        try:
            with closing(Source(self._root, self._path)) as again:
                now = again.local
        except OSError:
            return False
        if may_grow:
            return now.ino == self.local.ino and now.size >= self.local.size
        return now == self.local

    def record(self, generation: int, size: int, remote_mtime_s: int) -> Record:
        """The ledger's row once `size` bytes, all read in order, are on the master."""
        head, tail = self.edges(size)
        return Record(self.local, generation, size, self._crc, head, tail, self._sha.digest(), remote_mtime_s)

    def edges(self, size: int) -> tuple[int, int]:
        """CRC-32 of the first and of the last 4 KiB of the first `size` bytes."""
        head = os.pread(self.descriptor, min(EDGE_BYTES, size), 0)
        tail = os.pread(self.descriptor, min(EDGE_BYTES, size), max(0, size - EDGE_BYTES))
        return zlib.crc32(head), zlib.crc32(tail)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def fingerprint_of(read: Callable[[int, int], bytes], size: int) -> Fingerprint:
    """Hash the first `size` bytes of what `read(offset, count)` gives, or fewer where that ends."""
    sha, crc, at = hashlib.sha256(), 0, 0
    while at < size and (data := read(at, min(READ_BYTES, size - at))):
        sha.update(data)
        crc = zlib.crc32(data, crc)
        at += len(data)
    return Fingerprint(sha.digest(), crc, at)


def fingerprint(root: int, path: bytes, size: int) -> Fingerprint:
    """Hash the first `size` bytes of a file; `size` of the result is less where the file is shorter."""
    with closing(Source(root, path)) as source:
        return source.fingerprint(size)


class Committed:
    """What the agent says of its append-only outputs: `outputs` in agent.db (read-only).

    The agent commits there before it hints, so a hint counts only while agent.db cannot be read. An
    output whose stream has ended is in neither: then the file itself is the truth.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / "agent.db"
        self._db: sqlite3.Connection | None = None
        self._hinted: dict[bytes, Owned] = {}

    def hint(self, path: bytes, owned: Owned) -> None:
        """Remember a hint; they come in the order in which they were sent."""
        if len(self._hinted) >= MAX_REMEMBERED:
            self._hinted.clear()
        self._hinted[path] = owned

    def lookup(self, path: bytes) -> Owned | None:
        """The agent's word on an absolute path; None when it has none."""
        try:
            if self._db is None:
                if not self._path.exists():
                    return self._hinted.get(path)
                self._db = sqlite3.connect(sqlite_address(self._path), uri=True, timeout=0.2)
            row = self._db.execute(_OUTPUT, (os.fsdecode(path),)).fetchone()
        except UnicodeEncodeError:
            return self._hinted.get(path)
        except sqlite3.Error:
            self.close()
            return self._hinted.get(path)
        if row is None:
            self._hinted.pop(path, None)
            return None
        return Owned(int(row[0]), int(row[1]), bool(row[2]))

    def time_steps(self) -> dict[str, float | None]:
        """Item → time-step of the runs that live; run.json is a minute behind."""
        try:
            with closing(sqlite3.connect(sqlite_address(self._path), uri=True, timeout=0.2)) as db:
                runs = [json.loads(data) for (data,) in db.execute("SELECT data FROM runs WHERE live = 1")]
            return {f"{run['table']}/{run['index']}": run["time_step"] for run in runs}
        except (sqlite3.Error, ValueError, KeyError, TypeError):
            return {}

    def close(self) -> None:
        """Close agent.db; the next lookup opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None


class ScanError(RlaError):
    """The data root cannot be read, or this process is short of something; the look ends here."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a folder, or a file in it, could not be looked at, and what somebody can do."""

    reason: str
    fix: str


def unread(error: OSError) -> Unread:
    """What to tell of an error that a folder or file of this machine gave.

    Raises:
        ScanError: the error is a shortage of this process.
    """
    if error.errno in SHORTAGES:
        raise ScanError(f"this machine is short of resources: {error.strerror}; retrying") from error
    fix = WAYS_OUT.get(error.errno or 0, "check the disk or file server that holds it")
    return Unread(f"cannot be read here: {error.strerror or error}", fix)


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a database goes.

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
class Run:
    """What an item's run.json says, as far as it matters here."""

    host: str
    state: str
    time_step: float | None
    stamp: tuple[int, int]
    goes: bool = True  # False: its configuration, or RLA_MODE=offline, keeps it here

    @property
    def live(self) -> bool:
        """Whether rows may still come."""
        return self.state in LIVE_STATES


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder with the files in it that are in scope. `path`, `item`: below the data root.

    `mode`: permission bits that its copies get; None: not looked at. `shared`: it holds several items, or
    archives of such. `partial`: it holds more, which could not be looked at.
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
        """Whether more than one item lies in it."""
        return not self.item or self.kind == ARCHIVE_TESTER


class Scanner:
    """Looks at one data root. `unread`: folders of which not all could be seen at the last look, and why."""

    def __init__(self, root: bytes, scope: Scope) -> None:
        self.root = root
        self.scope = scope
        self._runs: dict[str, Run | None] = {}
        self.unread: dict[bytes, Unread] = {}

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
                del self.unread[path]  # not met again: it is gone

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

    def run(self, item: str) -> Run | None:
        """run.json of an item, read again when it has changed; None where there is none that says anything.

        Raises:
            ScanError: this process is short of descriptors or memory.
        """
        folder = os.fsencode(f"{LOG}/{item}")
        path = os.path.join(self.root, folder, b"run.json")
        try:
            found = os.lstat(path)
            stamp = (found.st_ino, found.st_mtime_ns)
            run = self._runs.get(item)
            if run is None or run.stamp != stamp:
                run = self._runs[item] = _read_run(path, stamp)
        except OSError as error:
            self._runs.pop(item, None)
            self._note(folder, b"run.json", error)
            return None
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
        yield self._folder(path, kind, item, files, live=self._live(_item_name(item)))
        for below in inner:
            yield from self._inside(below, kind, item, depth + 1)

    def _folder(
        self, path: bytes, kind: str, item: bytes, files: dict[bytes, Local], *, live: bool
    ) -> Folder:
        mode = None
        with suppress(OSError):
            mode = folder_copy_mode(os.path.join(self.root, path))
        return Folder(path, kind, item, live, files, mode, partial=path in self.unread)

    def _entries(self, path: bytes, depth: int) -> list[tuple[os.DirEntry[bytes], bool]] | None:
        """A folder's entries and whether each is a folder; None where that cannot be told."""
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
        """A file of a folder cannot be looked at; none where it is just gone."""
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


def heard_s_ago(run: object, now: float) -> float | None:
    """Seconds since a living run was heard of; None where run.json's content tells of no living one."""
    if not isinstance(run, dict) or str(run.get("state")) not in LIVE_STATES:
        return None
    updated = run.get("updated")
    age = now - updated if isinstance(updated, int | float) else SILENT_S
    return max(0.0, age) if age < SILENT_S else None


def _without_suffix(item: str) -> str:
    """The item of an archive_tester file."""
    for suffix in _SUFFIXES:
        item = item.removesuffix(suffix)
    return item


def _item_name(item: bytes) -> str:
    parts = item.split(b"/")
    return os.fsdecode(b"/".join(parts[2 if parts[0] == os.fsencode(ARCHIVED_TABLE) else 1 :]))


def _read_run(path: bytes, stamp: tuple[int, int]) -> Run | None:
    try:
        found = json.loads(read_small(os.fsdecode(path), MAX_RUN_JSON_BYTES))
    except (BrokenFileError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    step, goes = found.get("time_step"), found.get("replicate", True) is not False
    step = step if isinstance(step, int | float) else None
    return Run(str(found.get("host", "")), str(found.get("state", "")), step, stamp, goes)
