"""Fetching of one file from the master.

Sizes are bounded by the announced ones, and nothing is written through a link. A file gets a temp name, its
partial content is kept for the next attempt, and it takes its name once its size is the announced one and the
master's file has not changed meanwhile. For sharded checkpoints see `arriving_sharded`.

A local copy of a file that grows on the master grows too, in place (`grow`): a reader that has it open
(TensorBoard) sees the new rows, which it would not in a replacement. Size and the first and last 4 KiB show
whether the local file is a beginning of the master's; if not, it is fetched completely.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Final

from rla_agent.replicate.backend.errors import TargetError, TransientError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.transfer import arriving_sharded
from rla_agent.replicate.transfer.fetched_modes import fetched_mode, make_below, tighten
from rla_agent.replicate.transfer.local_room import NoRoomError, Room
from rla_agent.replicate.transfer.selection import item_of_file
from rla_agent.replicate.transfer.tally import Say
from rla_agent.replicate.worker.file_decision import is_growing
from rla_agent.replicate.worker.source_file import EDGE_BYTES
from rla_client.contract.filesystem.modes import PRIVATE_FILE, give_mode
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.item.foreign_mark import MARKED_KINDS, PICKLE_ENDINGS, mark_foreign
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.safe_names import check_relative

PARTIAL_PREFIX: Final = ".rla-tmp-pull-"
READ_BYTES: Final = 4 << 20


def fetch(  # noqa: PLR0913 - the last two have defaults
    session: TargetSession,
    root: str,
    path: bytes,
    state: RemoteStat,
    say: Say = lambda *_: None,
    *,
    ours: bool = False,
    room: Room | None = None,
) -> bool:
    """Fetch one file; False when it is here already.

    `ours`: the run was made here, so the local file is authoritative. `room`: shared by concurrent fetches.

    Raises:
        UnsafeNameError: the name would leave the data root.
        NewerHereError: the local file was changed after the master's, or is `ours`; it stays.
        NoRoomError: the disk here has no room for it; nothing of it is left.
        OSError: it cannot be written, or a link lies on the way.
        TransientError: the master's file changed meanwhile, or the link broke.
    """
    text, room = os.fsdecode(path), room or Room()
    parts = check_relative(text, what="the master's name")
    with closing_fd(make_below(session, root, parts[:-1])) as folder:
        found = size_and_time(folder, parts[-1])
        if not ours and found is not None:
            tighten(folder, parts[-1], state)
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
        arriving_sharded.prepare(root, path)
        partial = _partial_name(path, None if growing else state)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing_fd(os.open(partial, flags, PRIVATE_FILE, dir_fd=folder)) as descriptor:
            give_mode(descriptor, PRIVATE_FILE)  # a partial file may have wider permissions than that
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
            try:
                arriving_sharded.check(root, path, descriptor)
            except TransientError:
                os.unlink(partial, dir_fd=folder)
                raise
            os.utime(descriptor, (state.mtime_s, state.mtime_s))
            give_mode(descriptor, fetched_mode(folder, parts[-1], state.mode))
            os.fsync(descriptor)
        _put_in_place(folder, partial, parts[-1])
    return True


def _put_in_place(folder: int, partial: str, name: str) -> None:
    try:
        os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:  # in a bucket, `a` may exist beside `a/b`
        os.unlink(partial, dir_fd=folder)
        raise
    os.fsync(folder)


def _is_still(session: TargetSession, path: bytes, state: RemoteStat, *, growing: bool) -> bool:
    now = session.stat(path)
    return now == state or (growing and now is not None and now.size > state.size)


def _mark_fetched(root: str, path: str) -> None:
    """Mark a file as fetched before it is here, so that it is not unpickled as the user's own."""
    kind, item = path.split("/", 1)[0], item_of_file(path)
    if kind in MARKED_KINDS and item is not None and path.casefold().rstrip(". ").endswith(PICKLE_ENDINGS):
        with held_folder(root, f"{kind}/{item}") as folder:
            mark_foreign(folder)


def _partial_name(path: bytes, state: RemoteStat | None) -> str:
    """Temp name of this version of a file; None: one name for all, so that no old one is left."""
    version = b"" if state is None else b"%d %d" % (state.size, state.mtime_s)
    return PARTIAL_PREFIX + hashlib.sha256(path + version).hexdigest()[:24]


def fill(
    session: TargetSession,
    descriptor: int,
    path: bytes,
    state: RemoteStat,
    say: Say,
    room: Room | None = None,
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
    session: TargetSession,
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


class NewerHereError(TargetError):
    """The file here was changed after the master's, or its run was made here: it stays."""

    def __init__(self, path: bytes) -> None:
        super().__init__(
            "fetch",
            path,
            "the local file differs from the master's and is newer, or belongs to a run of this machine, "
            "so it is kept. Move it away to get the master's",
        )


def size_and_time(folder: int, name: str) -> tuple[int, int] | None:
    """Size and time (whole seconds) of what has a name in a folder (descriptor); None: nothing has it."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size, int(found.st_mtime)


def grow(
    session: TargetSession, folder: int, name: str, path: bytes, state: RemoteStat, room: Room | None = None
) -> bool:
    """Append the further bytes of the master's growing file `path` (`state`, or more since) to ours.

    Returns:
        False when ours is missing or is not a beginning of it; nothing was changed then.

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
        touched = found.st_mtime_ns % 10**9 != 0  # we set whole seconds, so somebody has written to it since
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
    session: TargetSession, descriptor: int, path: bytes, size: int, state: RemoteStat, *, all_of_it: bool
) -> bool:
    """Whether the master's file begins with `size` bytes of ours; else only their edges are compared."""
    edge = min(EDGE_BYTES, size)
    parts = [(0, edge)] if edge == size else [(0, edge), (size - edge, edge)]
    if all_of_it:
        parts = [(at, min(READ_BYTES, size - at)) for at in range(0, size, READ_BYTES)]
    return all(
        session.read_version(path, state, at, count) == os.pread(descriptor, count, at) for at, count in parts
    )
