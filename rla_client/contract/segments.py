"""The spool: the write-ahead files of one stream, how they are read, and whether their writer lives.

::

    <state>/spool/<stream>/
        lock          POSIX record lock, held by the writer while it lives; `<pid> <start time>`
        000001.seg    frames (rla_client/contract/protocol.py); the first one is OPEN
        000002.seg    exists only once 000001.seg is complete
        000002.base   the agent's: sizes of all outputs at the start of segment 2
        blobs/        large payloads that JOB frames name

Who does what. The client (rla_client/stream/segment_writer.py) creates the folder under a hidden
name, takes the lock, writes the first segment and renames the folder, so that a visible stream has a
lock and an opening frame. It appends and begins the next segment after SEGMENT_MAX_BYTES. It never
deletes. The agent reads at any offset and deletes: a segment when every output's durable position has
passed it, the folder when the writer is gone and everything has been taken in.

Invariants. Frames are appended by one write(2) on an O_APPEND descriptor under one lock; bytes
below `size` never change. A torn frame can only be the last thing in a segment (a short write
that could not be undone, after which the writer moves to a new segment, or a power cut). The
lock decides whether a writer lives; where it is free or gone, whether a process has the newest
segment open for writing. The writer has it mapped as well, so that it lives as long as its process, whoever
closes its descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path

from rla_client.contract.descriptors import is_locked
from rla_client.contract.errors import SpoolError
from rla_client.contract.files import FOLDER_FLAGS, READ_FLAGS

LOCK_NAME = "lock"
MAX_HOLDER_BYTES = 64
BLOBS_NAME = "blobs"
SEGMENT_SUFFIX = ".seg"
OPENING_BYTES = 1 << 16  # of a segment; an opening frame has a kilobyte, few have more than this
BASE_SUFFIX = ".base"
STREAM_NAME = re.compile(r"^[0-9a-f]{16}-[0-9]{1,10}-[0-9a-f]{8}$")
_SEGMENT_NAME = re.compile(r"^([0-9]{6,9})\.seg$")
LOCKLESS_S = 600.0  # after its last row, a writer is believed dead of which nothing is known
_NO_LOCK_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO}
_F_SETLEASE, _F_SETSIG = 1024, 10  # of Linux


def new_stream_name() -> str:
    """Unique over machines and reboots, sorts by time from 1970 on, safe as a folder name."""
    return f"{max(time.time_ns(), 0):016x}-{os.getpid()}-{os.urandom(4).hex()}"


def segment_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Path of segment `number` (from 1) of the stream in `folder`."""
    return Path(folder) / f"{number:06d}{SEGMENT_SUFFIX}"


def base_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Path of the sizes that the agent keeps for the start of segment `number`."""
    return Path(folder) / f"{number:06d}{BASE_SUFFIX}"


def segment_size(folder: str | os.PathLike[str], number: int) -> int | None:
    """Bytes of a segment; None where the stream has none of that number.

    Raises:
        FileNotFoundError: the stream's folder is away.
        OSError: that cannot be found out.
    """
    path = segment_path(folder, number)
    with suppress(FileNotFoundError):
        return os.stat(path).st_size
    descriptor = os.open(folder, FOLDER_FLAGS)  # it may have been away a moment ago, and be back
    try:
        return os.stat(path.name, dir_fd=descriptor).st_size
    except FileNotFoundError:
        return None
    finally:
        os.close(descriptor)


def segment_numbers(folder: str | os.PathLike[str] | int) -> list[int]:
    """Numbers of the segments that exist, ascending.

    Raises:
        FileNotFoundError: the stream is gone.
    """
    found = (_SEGMENT_NAME.match(name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def end_of(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Newest segment of a stream and its bytes; zeros for one without segments.

    Raises:
        OSError: that cannot be found out, or the stream is gone.
    """
    number = max(segment_numbers(folder), default=0)
    return number, segment_size(folder, number) or 0


def stream_names(spool: Path, *, links: bool = False) -> list[str]:
    """Streams in a spool, oldest first; whatever else lies there is passed over.

    Args:
        spool: the folder of the streams.
        links: also what only leads to a folder, for those who say that they do not read it.
    """
    with os.scandir(spool) as entries:
        named = (entry for entry in entries if STREAM_NAME.match(entry.name))
        return sorted(
            entry.name
            for entry in named
            if entry.is_dir(follow_symlinks=False) or (links and entry.is_symlink())
        )


def check_stream(folder: Path) -> None:
    """A stream, and its folder of blobs, are folders of ours (or of root's): others' are not read.

    Raises:
        FileNotFoundError: it is gone.
        SpoolError: one of them is a link, a file, or somebody else's.
    """
    _check_folder(folder)
    with suppress(FileNotFoundError):
        _check_folder(folder / BLOBS_NAME)


def _check_folder(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise SpoolError(f"{folder} is a link or a file: nothing is read from it")
    if found.st_uid not in {0, os.geteuid()}:
        raise SpoolError(f"{folder} belongs to uid {found.st_uid}: nothing is read from it")


def writer_alive(folder: str | os.PathLike[str], spool: int | None = None) -> bool | None:
    """Whether the writer of a stream lives; True when that cannot be found out, None if its folder is away.

    It lives while it holds the lock. A free lock says nothing, nor does one whose file is gone or another
    one: a cleaner deletes it, and whatever in the writing process opens and closes it (a copy of the state
    folder) lets it go. Then the writer lives while a process has the newest segment open for writing, or
    mapped so: that holds while its program runs, also where something in it closed all descriptors, until the
    next record opens the segment again.

    All of that is asked of one folder, whatever takes its name meanwhile. One that is away (the spool is
    renamed, say) may come back: that says nothing of the writer.

    Never call it in the writing process itself: closing any descriptor of a POSIX-locked file
    drops the lock.

    Args:
        folder: of the stream.
        spool: descriptor of the folder of the streams, for the stream in that one, whatever its path is now.
    """
    try:
        held = os.open(folder if spool is None else os.path.basename(folder), FOLDER_FLAGS, dir_fd=spool)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return True  # out of descriptors or memory: that says nothing of the writer
    try:
        return _writes_in(held)
    finally:
        os.close(held)


def _writes_in(folder: int) -> bool:
    named = b""
    try:
        descriptor = os.open(LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_LOCK_FILE:
            return True
    else:
        try:
            if is_locked(descriptor):
                return True
            named = os.pread(descriptor, MAX_HOLDER_BYTES, 0)
        except OSError:
            return True
        finally:
            os.close(descriptor)
    return _segment_is_written(folder, named)


def _segment_is_written(folder: int, named: bytes) -> bool:
    """Whether a process has the newest segment open for writing; True when that cannot be found out.

    The kernel grants a read lease only on files that nobody has open for writing. That holds over pid
    namespaces, after exec, and where the number of a dead process went to another one.

    Args:
        folder: of the stream; a descriptor.
        named: what the lock file says, for file systems without leases.
    """
    try:
        numbers = segment_numbers(folder)
        newest = segment_path("", numbers[-1])
        descriptor = os.open(newest, READ_FLAGS, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError, IndexError):
        return False
    except OSError as error:
        return error.errno != errno.ELOOP
    try:
        found = _is_open_for_writing(descriptor)
        if found is None:
            written = os.fstat(descriptor).st_mtime
            found = process_lives(named) if named else time.time() - written < LOCKLESS_S
        return found or segment_numbers(folder) != numbers
    except FileNotFoundError:
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _is_open_for_writing(descriptor: int) -> bool | None:
    """Whether any process has an open file open for writing, too; None where the kernel does not tell."""
    try:
        fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGURG)  # ignored, where SIGIO would end the process
        fcntl.fcntl(descriptor, _F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, _F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    return False


def process_lives(named: bytes) -> bool:
    """Whether the process of a lock file's `<pid> <start time>` lives on this machine.

    It counts where the lock is free and the file system has no leases; a writer that lets go empties
    the file.
    """
    pid, _, start = named.decode("ascii", "replace").strip().partition(" ")
    if not (pid.isdecimal() and start.isdecimal()):
        return False
    found = process_start(int(pid))
    return found is not None and found == int(start)


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def spool_bytes(spool: Path) -> int:
    """Bytes that all streams hold, blobs included; streams that go meanwhile count as nothing."""
    return sum(stream_size(spool / name)[0] for name in stream_names(spool))


def stream_size(folder: str | os.PathLike[str]) -> tuple[int, float]:
    """Bytes that one stream holds, blobs included, and when it was written last (Unix seconds)."""
    total, changed = 0, 0.0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    size, when = stream_size(entry.path)
                else:
                    found = entry.stat(follow_symlinks=False)
                    size, when = found.st_size, found.st_mtime
                total, changed = total + size, max(changed, when)
    return total, changed


def read_at(path: str | os.PathLike[str], offset: int, limit: int) -> bytes:
    """Bytes of a segment from `offset`, at most `limit`; empty at its present end.

    Raises:
        FileNotFoundError: the segment does not exist (yet, or any more).
        SpoolError: it is a link, no plain file, or somebody else's.
    """
    try:
        descriptor = os.open(path, READ_FLAGS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SpoolError(f"{os.fspath(path)} is a link: nothing is read from it") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, os.geteuid()}:
            whose = f"is not a plain file, or belongs to uid {found.st_uid}"
            raise SpoolError(f"{os.fspath(path)} {whose}: nothing is read from it")
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)
