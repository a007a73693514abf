"""`pull` and `push` by hand, without a daemon or a ledger, from any machine that may log in to the master.

*pull* never trusts what the master says: a name must be one safe path component, an item's path must parse,
sizes are bounded by what was announced, and nothing is written through a link. A file goes to a temp name,
its partial content is kept for the next try, and it takes its name once its size is the announced one and
the master's file has not changed meanwhile. It is never more open than on the master, nor than its folder,
the umask, or what it replaces here allow (`fetched_mode`). What came of an ended run is checked against its
`SHA256SUMS`.

A local copy of a file that grows on the master grows too, in place (`grow`): a reader that has it open
(TensorBoard) sees the new rows, which it would not in a file that replaced it. Whether the local file is a
beginning of the master's is seen by size and by its first and last 4 KiB; if not, it is fetched whole.

What is newer here, or of a run that this machine made, stays (`Ours`). The master's copy of a run lags
behind the machine that writes it. A pull into that machine's own data root must not put old rows in the
place of new ones, least of all under the agent, which holds them open.

Several files come at a time (`readers`), each with a place promised to it on the disk here (`room`): nothing
is begun that does not fit, and what does not fit after all is taken away again.

`pull --follow` keeps a selection's files current, for TensorBoard or a plot on a laptop. The connection is
kept; when it breaks, a new one is made after a while.

*push* is the replicator's `Sender`. A folder of the master is listed once: what has the same size and time
there stays, and gets the permissions that it has here. A large file goes to a temp name that says which
version it is, so an interrupted push continues where it stopped, less what was in flight then. Temp files
that other pushes left are removed once nobody can be writing them any more.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import random
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from rla_agent.replicate import settings
from rla_agent.replicate.backend.sftp_wire import MAX_WINDOW_BYTES
from rla_agent.replicate.backend.target import (
    TEMP_PREFIX,
    LinkError,
    MissingError,
    RemoteStat,
    Session,
    TargetError,
    TransientError,
    listing_or_empty,
)
from rla_agent.replicate.ledger import Due, Key
from rla_agent.replicate.readers import Readers
from rla_agent.replicate.room import NoRoomError, Room
from rla_agent.replicate.verify import damaged
from rla_agent.replicate.worker.plan import SMALL_BYTES, Local, Whole, backoff_s, copy_mode, is_growing
from rla_agent.replicate.worker.send import Failed, Job, Sender, Sent
from rla_agent.replicate.worker.source import (
    EDGE_BYTES,
    MAX_DEPTH,
    Folder,
    Scanner,
    Scope,
)
from rla_client.contract.agent.places import find_places
from rla_client.contract.checkpoint.provenance import MARKED_KINDS, PICKLE_ENDINGS, mark_foreign
from rla_client.contract.errors import ArgumentError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import fsync_folder
from rla_client.contract.filesystem.modes import PRIVATE_FILE, PRIVATE_FOLDER, folder_mode, give_mode, umask
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import held_folder, open_folder, open_root
from rla_client.contract.layout import ARCHIVE_TESTER, DEFAULT_LOG_TYPES, OWN_NAMES
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.run_index import RunIndex
from rla_client.contract.safe_names import check_relative, component_problem
from rla_client.contract.text.terminal_text import printable

LONGEST_REST_S: Final = 60.0  # somebody watches
PARTIAL_PREFIX: Final = ".rla-tmp-pull-"
MAX_LISTED: Final = 10_000_000  # files that one pull may see
READ_BYTES: Final = 4 << 20
_DATE: Final = re.compile(r"\d{4}(/\d{2}(/\d{2}(/\d{2}(-\d{2}(-\d{2}(-\d{1,6})?)?)?)?)?)?")
_ITEM_PARTS: Final = 6  # kind, table, YYYY, MM, DD, name
Say = Callable[[str, int, int], None]
PUSH_PREFIX: Final = TEMP_PREFIX + b"push-"
PUSH_BATCH: Final = 32
LEFT_S: Final = 3600.0  # a partial file here that no pull has written to for so long is left over
STALE_S: Final = 24 * 3600.0  # a temp file that nobody has written to for so long is left over


@dataclass(frozen=True, slots=True)
class Selection:
    """Which items: all fields must hold.

    Attributes:
        table: glob for the task table name.
        index: glob for `YYYY/MM/DD/name`.
        since, until: `YYYY/MM/DD[/HH-MM-SS-ffffff]`, until included by prefix.
        kinds: data kinds.

    Raises:
        ArgumentError: a date has another form, or there is no such kind.
    """

    table: str = "*"
    index: str = "*"
    since: str = ""
    until: str = ""
    kinds: tuple[str, ...] = DEFAULT_LOG_TYPES

    def __post_init__(self) -> None:
        """Check what would select nothing."""
        for name, value in (("since", self.since), ("until", self.until)):
            if value and not _DATE.fullmatch(value):
                raise ArgumentError(f"{name} is a date like 2026/11/21 or 2026/11/21/09-30-01; got {value!r}")
        for kind in self.kinds:
            if kind not in DEFAULT_LOG_TYPES:
                raise ArgumentError(
                    f"there is no kind {kind!r}; the kinds are {', '.join(DEFAULT_LOG_TYPES)}"
                )

    def takes(self, table: str, index: RunIndex) -> bool:
        """Whether an item is selected."""
        date = index.record_date
        return (
            fnmatch.fnmatchcase(table, self.table)
            and fnmatch.fnmatchcase(index.path, self.index)
            and (not self.since or date >= self.since)
            and (not self.until or date[: len(self.until)] <= self.until)
        )


@dataclass
class Tally:
    """What a transfer did. `left_out`: names on the master that are no file's."""

    files: int = 0
    bytes: int = 0
    same: int = 0
    failed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Lists(Protocol):
    """What tells what is in a folder of the master: a `Session`, or several (`Readers`)."""

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `Session`."""


def remote_files(session: Lists, selection: Selection, tally: Tally) -> Iterator[tuple[bytes, RemoteStat]]:
    """Files of the selected items on the master; unsafe names are left out and reported."""
    for kind in selection.kinds:
        yield from _walk(session, kind.encode(), selection, tally, inside=False)


def item_files(session: Lists, path: bytes, tally: Tally) -> Iterator[tuple[bytes, RemoteStat]]:
    """Files below one item's folder on the master; none where that is not there."""
    yield from _walk(session, path, Selection(), tally, inside=True)


def _walk(
    session: Lists, path: bytes, selection: Selection, tally: Tally, *, inside: bool
) -> Iterator[tuple[bytes, RemoteStat]]:
    for name, state in _listed(session, path, tally):
        if name.startswith(b".rla-tmp-") or os.fsdecode(name) in OWN_NAMES:
            continue
        problem = component_problem(os.fsdecode(name))
        if problem:
            tally.failed.append(f"{os.fsdecode(path)!r}: the master's name {name!r} is refused: {problem}")
            continue
        inner = path + b"/" + name
        taken = inside or chosen(inner, selection)
        if state.kind == "folder" and (taken or _item_of(inner) is None):
            yield from _walk(session, inner, selection, tally, inside=taken)
        elif state.kind == "file" and taken:
            yield inner, state


def _listed(session: Lists, path: bytes, tally: Tally) -> list[tuple[bytes, RemoteStat]]:
    """A folder's entries; one that cannot be read costs only what is below it."""
    if path.count(b"/") > MAX_DEPTH:
        tally.failed.append(f"{os.fsdecode(path)}: nested more than {MAX_DEPTH} folders deep")
        return []
    try:
        return sorted(session.listing(path), key=lambda entry: entry[0])
    except MissingError:
        return []  # no such kind there, or moved to the trash since its parent was listed
    except LinkError:
        raise
    except TargetError as error:
        tally.failed.append(str(error))
        return []


def _item_of(path: bytes) -> tuple[str, RunIndex] | None:
    parts = os.fsdecode(path).split("/")
    index = RunIndex.parse("/".join(parts[-4:])) if len(parts) >= _ITEM_PARTS else None
    return None if index is None else ("/".join(parts[1:-4]), index)


def chosen(path: bytes, selection: Selection) -> bool:
    """Whether a path is that of a selected item, or an archive_tester file of one."""
    found = _item_of(path)
    return found is not None and selection.takes(*found)


def pull(source: Session | Readers, root: str, selection: Selection, say: Say = lambda *_: None) -> Tally:
    """Fetch the selected items into the data root; what is there already (size, time) or is newer stays.

    Args:
        source: a session at the master, or several readers, so that several files come at a time.
        root: the data root.
        selection: which items.
        say: is told how far a file is, from any thread.

    Raises:
        LinkError: the link broke; what came stays, and the next try goes on from there.
    """
    tally, room = Tally(), Room()
    new: dict[str, list[str]] = {}
    fetched, failed = set[str](), set[str]()  # folders
    readers = source if isinstance(source, Readers) else Readers(source)

    def told(path: str, done: int, total: int) -> None:
        readers.go_on()
        say(path, done, total)

    def bring(session: Session, wanted: _Wanted) -> bool | Exception:
        path, state = wanted.path, wanted.state
        try:
            return fetch(session, root, path, state, told, ours=wanted.ours, room=room)
        except LinkError:
            raise
        except (TargetError, UnsafeNameError, OSError) as error:
            return error

    with closing(readers.each(_all_wanted(readers, root, selection, tally), bring)) as results:
        for wanted, done in results:
            path = os.fsdecode(wanted.path)
            folder = path.rpartition("/")[0]
            if isinstance(done, Exception):
                failed.add(folder)
                tally.failed.append(f"{path}: {done}")
                continue
            if done:
                fetched.add(folder)
            tally.files += done
            tally.same += not done
            tally.bytes += wanted.state.size if done else 0
            if done and wanted.item is not None:
                new.setdefault(wanted.item, []).append(path)
    tally.left_out += readers.first.left_out()
    for folder in fetched - failed:
        _clear_partials(root, folder)
    tally.failed += [
        f"{path}: not what the run's SHA256SUMS says; on the machine that made it: rla verify --fix"
        for item, paths in new.items()
        for path in damaged(root, item, paths)
    ]
    return tally


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A file of the master; `ours`: its run was made here."""

    path: bytes
    state: RemoteStat
    item: str | None
    ours: bool


def _all_wanted(session: Lists, root: str, selection: Selection, tally: Tally) -> Iterator[_Wanted]:
    ours = Ours(root)
    for count, (path, state) in enumerate(remote_files(session, selection, tally)):
        if count >= MAX_LISTED:
            tally.failed.append(f"the master has more than {MAX_LISTED} such files; select fewer")
            return
        item = _item_of_file(os.fsdecode(path))
        yield _Wanted(path, state, item, item is not None and ours.made(item))


def _clear_partials(root: str, folder: str) -> None:
    """Of a folder whose files are all here, delete what killed pulls have left of other versions."""
    with suppress(OSError, UnsafeNameError), held_folder(root, folder) as here:
        for name in os.listdir(here):
            if name.startswith(PARTIAL_PREFIX) and time.time() - os.lstat(here / name).st_mtime > LEFT_S:
                os.unlink(here / name)


def _item_of_file(path: str) -> str | None:
    """`table/YYYY/MM/DD/name` of a file's path below the data root."""
    parts = path.split("/")
    for end in range(_ITEM_PARTS, len(parts)):
        if RunIndex.parse("/".join(parts[end - 4 : end])) is not None:
            return "/".join(parts[1:end])
    return None


def fetch(  # noqa: PLR0913 - the last two have defaults
    session: Session,
    root: str,
    path: bytes,
    state: RemoteStat,
    say: Say = lambda *_: None,
    *,
    ours: bool = False,
    room: Room | None = None,
) -> bool:
    """Fetch one file; False when it is here already.

    `ours`: the run was made here, so what is here is right. `room`: shared by files that come at a time.

    Raises:
        UnsafeNameError: the name would leave the data root.
        NewerHereError: what is here was changed after the master's, or is `ours`; it stays.
        NoRoomError: the disk here has no room for it; nothing of it is left.
        OSError: it cannot be written, or a link lies on the way.
        TransientError: the master's file changed meanwhile, or the link broke.
    """
    text, room = os.fsdecode(path), room or Room()
    parts = check_relative(text, what="the master's name")
    with closing_fd(make_below(session, root, parts[:-1])) as folder:
        found = size_and_time(folder, parts[-1])
        if not ours and found is not None:
            _tighten(folder, parts[-1], state)
        if found == (state.size, state.mtime_s):
            return False
        if found is not None and ours:
            raise NewerHereError(path)
        growing = is_growing(parts[0], os.fsencode(parts[-1]))
        if growing and grow(session, folder, parts[-1], path, state, room):
            return True
        if found is not None and found[1] > state.mtime_s:
            raise NewerHereError(path)
        _mark_fetched(root, text)
        partial = _partial_name(path, None if growing else state)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing_fd(os.open(partial, flags, PRIVATE_FILE, dir_fd=folder)) as descriptor:
            give_mode(descriptor, PRIVATE_FILE)  # an earlier release left it open to others, perhaps
            if growing:
                os.ftruncate(descriptor, 0)
            try:
                fill(session, descriptor, path, state, say, room)
            except NoRoomError:
                os.unlink(partial, dir_fd=folder)
                raise
            if not session.has_versions and not _is_still(session, path, state, growing=growing):
                os.unlink(partial, dir_fd=folder)
                what = "the file changed on the master meanwhile"
                raise TransientError("fetch", path, what, "run it again")
            os.utime(descriptor, (state.mtime_s, state.mtime_s))
            give_mode(descriptor, fetched_mode(folder, parts[-1], state.mode))
            os.fsync(descriptor)
        os.replace(partial, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    return True


def _is_still(session: Session, path: bytes, state: RemoteStat, *, growing: bool) -> bool:
    now = session.stat(path)
    return now == state or (growing and now is not None and now.size > state.size)


def _mark_fetched(root: str, path: str) -> None:
    """Say, before it is here, that a file came from the master: it is not unpickled as one's own."""
    kind, item = path.split("/", 1)[0], _item_of_file(path)
    if kind in MARKED_KINDS and item is not None and path.casefold().rstrip(". ").endswith(PICKLE_ENDINGS):
        with held_folder(root, f"{kind}/{item}") as folder:
            mark_foreign(folder)


def _partial_name(path: bytes, state: RemoteStat | None) -> str:
    """Temp name of this version of a file; None: of any version, so that no old one is left."""
    version = b"" if state is None else b"%d %d" % (state.size, state.mtime_s)
    return PARTIAL_PREFIX + hashlib.sha256(path + version).hexdigest()[:24]


def fill(
    session: Session, descriptor: int, path: bytes, state: RemoteStat, say: Say, room: Room | None = None
) -> None:
    """Read the master's file into an open one, from where that ends.

    Raises:
        NoRoomError: the disk here has no room for it.
        TransientError: the master's file is shorter than `state` says, or the link broke.
    """
    at = min(os.fstat(descriptor).st_size, state.size)
    os.ftruncate(descriptor, at)
    _read_on(session, descriptor, path, at, state, room=room or Room(), say=say)


def _read_on(  # noqa: PLR0913 - what, whereto, and who is told
    session: Session,
    descriptor: int,
    path: bytes,
    at: int,
    state: RemoteStat,
    *,
    room: Room,
    say: Say = lambda *_: None,
) -> None:
    with room.promised(descriptor, state.size - at) as wrote:
        while at < state.size:
            data = session.read_version(path, state, at, min(READ_BYTES, state.size - at))
            if not data:
                raise TransientError("fetch", path, f"the master's file ends at {at} of {state.size} bytes")
            count = os.pwrite(descriptor, data, at)
            at += count
            wrote(count)
            say(os.fsdecode(path), at, state.size)


def fetched_mode(folder: int, name: str, mode: int | None) -> int:
    """Permission bits of a file that is fetched into an open folder, as `name`.

    Args:
        folder: descriptor.
        name: of the file; one that is there and will be replaced hands on at most its own.
        mode: of the master's file; None: not told, so it is for its owner alone.
    """
    bits = (PRIVATE_FILE if mode is None else mode) & folder_mode(folder) & ~umask()
    with suppress(FileNotFoundError):
        bits &= os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode | 0o700
    return copy_mode(bits)


def _tighten(folder: int, name: str, state: RemoteStat) -> None:
    """Take from others what a file here has more than the master's."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if state.mode is None or not stat.S_ISREG(found) or not found & ~state.mode & 0o077:
        return
    with closing_fd(os.open(name, READ_FLAGS, dir_fd=folder)) as descriptor:
        give_mode(descriptor, found & (state.mode | 0o700) & 0o777)


def make_below(session: Session, root: str, parts: tuple[str, ...]) -> int:
    """Open (and make, no more open than on the master) a folder below the data root."""
    missing = [path for path in (Path(root), *Path(root).parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(0o777 if umask() else 0o755, exist_ok=True)  # the agent's umask is 0
    for count in range(len(parts)):
        try:
            os.close(open_folder(root, "/".join(parts[: count + 1])))
        except FileNotFoundError:
            there = session.stat(os.fsencode("/".join(parts[: count + 1]))) if session.tells_modes else None
            mode = PRIVATE_FOLDER | ((there.mode or 0) if there is not None else 0)
            with held_folder(root, "/".join(parts[:count]) or ".") as above, suppress(FileExistsError):
                os.mkdir(above / parts[count], folder_mode(above) & mode)
                fsync_folder(above)
    return open_folder(root, "/".join(parts))


def follow(
    connect: Callable[[], Readers],
    pull: Callable[[Readers], Tally],
    every_s: float,
    tell: Callable[[Tally], None],
    complain: Callable[[str], None],
) -> None:
    """Pull again and again, until somebody interrupts.

    `tell` takes what came of each look, `complain` a line about a connection that broke.

    Raises:
        TargetError: the master refuses; whatever may pass is tried again.
    """
    tries = 0
    while True:
        try:
            with closing(connect()) as readers:
                while True:
                    tell(pull(readers))
                    tries = 0
                    time.sleep(every_s)
        except LinkError as error:
            tries += 1
            rest = min(LONGEST_REST_S, max(1.0, backoff_s(tries, random.random())))  # noqa: S311
            complain(f"{error}; trying again in {rest:.0f} s")
            time.sleep(rest)


class NewerHereError(TargetError):
    """The file here was changed after the master's, or its run was made here: it stays."""

    def __init__(self, path: bytes) -> None:
        super().__init__(
            "fetch",
            path,
            "what is here is not the master's, and is newer or of a run of this machine; it stays. "
            "Move it away to get the master's",
        )


class Ours:
    """Which items of a data root were made here: it is sent from this machine, and their runs are of it.

    Remembers the last one, for files come in groups.
    """

    def __init__(self, root: str) -> None:
        known = {os.path.realpath(entry.data_root) for entry in settings.entries(find_places().state)}
        self._sent_from_here = os.path.realpath(root) in known  # else it is a copy, whoever made the runs
        self._scanner = Scanner(os.fsencode(root), Scope(host=""))
        self._host = socket.gethostname()
        self._last: tuple[str, bool] = ("", False)

    def made(self, item: str) -> bool:
        """Whether run.json here says so; False of an item that is not here."""
        if not self._sent_from_here:
            return False
        if self._last[0] != item:
            run = self._scanner.run(item)
            self._last = item, run is not None and run.host == self._host
        return self._last[1]


def size_and_time(folder: int, name: str) -> tuple[int, int] | None:
    """Size and time (whole seconds) of what has a name in a folder (descriptor); None: nothing has it."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size, int(found.st_mtime)


def grow(
    session: Session, folder: int, name: str, path: bytes, state: RemoteStat, room: Room | None = None
) -> bool:
    """Append what the master's growing file `path` (`state`, or more since) has more than ours.

    Returns:
        False when ours is not there or is not a beginning of it; nothing was changed then.

    Raises:
        TransientError: the master's file is shorter now, or the link broke; what came so far stays.
        NoRoomError: the disk here has no room for the rest; nothing of it stays.
        OSError: it cannot be written.
    """
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    with closing_fd(descriptor):
        found = os.fstat(descriptor)
        at = found.st_size
        if not stat.S_ISREG(found.st_mode) or not 0 < at <= state.size:
            return False
        touched = found.st_mtime_ns % 10**9 != 0  # we set whole seconds: somebody has written to it since
        if not _is_beginning(session, descriptor, path, at, state, all_of_it=touched):
            return False
        try:
            _read_on(session, descriptor, path, at, state, room=room or Room())
        except NoRoomError:
            os.ftruncate(descriptor, at)
            os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))
            raise
        os.utime(descriptor, (state.mtime_s, state.mtime_s))  # never later than the master's next version
        os.fsync(descriptor)
    return True


def _is_beginning(
    session: Session, descriptor: int, path: bytes, size: int, state: RemoteStat, *, all_of_it: bool
) -> bool:
    """Whether the master's file begins with `size` bytes of ours; else only their edges are compared."""
    edge = min(EDGE_BYTES, size)
    parts = [(0, edge)] if edge == size else [(0, edge), (size - edge, edge)]
    if all_of_it:
        parts = [(at, min(READ_BYTES, size - at)) for at in range(0, size, READ_BYTES)]
    return all(
        session.read_version(path, state, at, count) == os.pread(descriptor, count, at) for at, count in parts
    )


def push(session: Session, root: str, selection: Selection, say: Say = lambda *_: None) -> Tally:
    """Send the selected items of the data root; what the master has (size, time) stays."""
    tally = Tally()
    with closing_fd(open_root(root)) as descriptor:
        sender = Sender(
            session, descriptor, lambda job, done: say(os.fsdecode(job.due.path), done, job.due.pending)
        )
        batch: list[Job] = []
        for job in _jobs(session, root, selection, tally):
            batch.append(job)
            if len(batch) == PUSH_BATCH:
                _send(session, sender, batch, tally)
                batch = []
        _send(session, sender, batch, tally)
    tally.left_out += session.left_out()
    return tally


def _jobs(session: Session, root: str, selection: Selection, tally: Tally) -> Iterator[Job]:
    scanner = Scanner(os.fsencode(root), Scope(host="", kinds=selection.kinds))
    for folder in scanner.everything():
        wanted = {
            name: local
            for name, local in sorted(folder.files.items())
            if chosen(folder.path + b"/" + name if folder.kind == ARCHIVE_TESTER else folder.item, selection)
        }
        if folder.mode is not None and (folder.shared or chosen(folder.item, selection)):
            session.set_modes([(folder.path, folder.mode)], only_less=folder.shared)  # if it is there
        if not wanted:
            continue
        there = _there(session, folder.path)
        modes = []
        for name, local in wanted.items():
            found = there.get(name)
            if found is not None and (found.size, found.mtime_s) == (local.size, local.mtime_ns // 10**9):
                tally.same += 1
                if local.mode is not None and found.mode not in {None, local.mode}:
                    modes.append((folder.path + b"/" + name, local.mode))
            else:
                yield _job(folder, name, local, there)
        session.set_modes(modes)
    tally.failed += [
        f"{printable(os.fsdecode(path))}: {why.reason}; {why.fix}" for path, why in scanner.unread.items()
    ]


def _there(session: Session, folder: bytes) -> dict[bytes, RemoteStat]:
    """What the master has in a folder; old temp files of pushes are removed."""
    found = dict(listing_or_empty(session, folder))
    for name, state in list(found.items()):
        if name.startswith(PUSH_PREFIX) and state.kind == "file" and time.time() - state.mtime_s > STALE_S:
            session.remove(folder + b"/" + name)
            del found[name]
    return found


def _job(folder: Folder, name: bytes, local: Local, there: Mapping[bytes, RemoteStat]) -> Job:
    path = folder.path + b"/" + name
    due = Due(Key(0, name), path, folder.kind, folder.item, False, local.size, 0, 0, 0.0, (), None)
    if local.size <= SMALL_BYTES:
        return Job(due, Whole(local.size), folder.path + b"/" + PUSH_PREFIX + secrets.token_hex(8).encode())
    version = b"%d %d %d" % (local.size, local.mtime_ns, local.ino)
    temp = PUSH_PREFIX + hashlib.sha256(path + version).hexdigest()[:24].encode()
    begun = there.get(temp)
    start = 0
    if begun is not None and begun.kind == "file" and begun.size <= local.size:
        start = max(0, begun.size - MAX_WINDOW_BYTES)
    if begun is not None and start == 0:  # nothing to continue, and the name is taken
        temp += b"-" + secrets.token_hex(4).encode()
    return Job(due, Whole(local.size), folder.path + b"/" + temp, start)


def _send(session: Session, sender: Sender, batch: list[Job], tally: Tally) -> None:
    results: list[Sent | Failed] = []
    if batch:
        sender.send_all(batch, results)
    for result in results:
        if isinstance(result, Sent):
            tally.files += 1
            tally.bytes += result.record.acked
            continue
        tally.failed.append(f"{os.fsdecode(result.job.due.path)}: {result.error}")
        with suppress(TargetError):  # after a write that failed, what is there is no beginning
            session.remove(result.job.temp)
