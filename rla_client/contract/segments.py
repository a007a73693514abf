"""The spool: the write-ahead files of one stream, and how they are read.

::

    <state>/spool/<stream>/
        lock          POSIX record lock, held by the writer while it lives; `<pid> <start time>`
        000001.seg    frames (rla_client/contract/protocol.py); the first one is OPEN
        000002.seg    exists only once 000001.seg is complete
        000002.base   the agent's: sizes of all outputs at the start of segment 2
        blobs/        large payloads that JOB frames name

Who does what. The client creates the folder under a hidden name, takes the lock, writes the
first segment and renames the folder, so that a visible stream has a lock and an opening frame.
It appends and begins the next segment after SEGMENT_MAX_BYTES. It never deletes. The agent reads
at any offset and deletes: a segment when every output's durable position has passed it, the
folder when the writer is gone and everything has been taken in.

Invariants. Frames are appended by one write(2) on an O_APPEND descriptor under one lock; bytes
below `size` never change. A torn frame can only be the last thing in a segment (a short write
that could not be undone, after which the writer moves to a new segment, or a power cut). The
lock decides whether a writer lives; where it is free or gone, whether a process has the newest
segment open for writing. The writer has it mapped as well, so that it lives as long as its process, whoever
closes its descriptors.

Descriptors. Whatever runs in the process may close ours, and open its own files under their numbers. So
whoever writes calls `verify` first: the descriptor must be where the last write left it; and `check`, some
times a second, asks which file it leads to. One that is not ours any more is forgotten, and the file opened
again. Without `verify` only TRUST_S after the last write: nobody opens FLOOR files in so short a time.

Interrupts. Signal handlers run after calls and at loop ends, and may raise, or call us again. So
what must not be parted from a system call is straight-line code without calls: the bookkeeping
after write(2), the check before it, the step to the next segment after its rename. `unsettled`
stays set whenever the bookkeeping was not reached; the next append then measures the file, and
finishes a step to the next segment, instead of trusting memory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rla_client.contract.descriptors import FLOOR, Identity, close_own, identity, leads_to, open_high
from rla_client.contract.errors import SpoolError
from rla_client.contract.files import FOLDER_FLAGS, MAX_SMALL_BYTES, READ_FLAGS, TEMP_PREFIX
from rla_client.contract.locks import is_locked, lock_record_of_process
from rla_client.contract.protocol import (
    SEGMENT_MAX_BYTES,
    FrameKind,
    iter_frames,
)

if TYPE_CHECKING:
    from rla_client.contract.mapping import Mapping

LOCK_NAME = "lock"
MAX_HOLDER_BYTES = 64
TRUST_S = 0.0002  # that our descriptor stays ours without being asked; a training step takes longer
BLOBS_NAME = "blobs"
SEGMENT_SUFFIX = ".seg"
OPENING_BYTES = 1 << 16  # of a segment; an opening frame has a kilobyte, few have more than this
BASE_SUFFIX = ".base"
STREAM_NAME = re.compile(r"^[0-9a-f]{16}-[0-9]{1,10}-[0-9a-f]{8}$")
_SEGMENT_NAME = re.compile(r"^([0-9]{6,9})\.seg$")
LOCKLESS_S = 600.0  # after its last row, a writer is believed dead of which nothing is known
_NO_LOCK_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO}
_F_SETLEASE, _F_SETSIG = 1024, 10  # of Linux

OpeningFrame = Callable[[int, int], bytes]  # (segment number, rows before it) → OPEN frame


def new_stream_name() -> str:
    """Unique over machines and reboots, sorts by time, safe as a folder name."""
    return f"{time.time_ns():016x}-{os.getpid()}-{os.urandom(4).hex()}"


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
        message = f"{folder} is a link or a file: nothing is read from it"
        raise SpoolError(message)
    if found.st_uid not in {0, os.geteuid()}:
        message = f"{folder} belongs to uid {found.st_uid}: nothing is read from it"
        raise SpoolError(message)


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
    if not (pid.isdigit() and start.isdigit()):
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


def _remove_begun(folder: Path) -> None:
    """Remove a stream that was hardly begun, also where there are no descriptors left to list it by."""
    names = {LOCK_NAME, segment_path(folder, 1).name}
    with suppress(OSError):
        names.update(os.listdir(folder))
    for name in names:
        with suppress(OSError):
            os.unlink(folder / name)
    with suppress(OSError):
        os.rmdir(folder)


class _NextSegment(NamedTuple):
    """A segment that is written under a hidden name and about to be begun."""

    descriptor: int
    identity: Identity
    number: int
    size: int
    hidden: Path
    kept: Mapping | None


class SegmentWriter:
    """Appends frames to the segments of one stream. Not thread-safe: the outbox holds the lock.

    Attributes:
        name: of the stream.
        folder: of the stream.
        number: current segment, from 1.
        size: bytes of the current segment that are whole frames.
        rows: ROW frames in all segments so far.
        frames: frames that were appended, opening frames aside.
        unsettled: these numbers may lag behind the file, see `settle`.
        trust_s: seconds after a write within which the descriptor needs no `verify`.
    """

    def __init__(self, spool: Path, opening_frame: OpeningFrame) -> None:
        """Create the stream: folder, lock, first segment.

        Raises:
            SpoolError: the spool cannot be written.
        """
        self.name = new_stream_name()
        self.folder = spool / self.name
        self.number = 0
        self.size = 0
        self.rows = 0
        self.frames = 0
        self._opening_frame = opening_frame
        self.unsettled = False
        self._opening_bytes = 0
        self._descriptor = self._lock = -1
        self._identity = self._lock_identity = (-1, -1)
        self.trust_s = 0.0
        self._kept: Mapping | None = None
        self._next: _NextSegment | None = None
        self._base, self._base_seen = b"", (0, 0, 0)
        hidden = spool / f"{TEMP_PREFIX}{self.name}"
        try:
            self._make_folder(hidden)
            self._begin_segment(hidden)
            os.rename(hidden, self.folder)
        except BaseException as error:
            self.abandon()  # refused or interrupted: nobody will ever write to this stream
            for folder in (hidden, self.folder):
                _remove_begun(folder)
            if isinstance(error, OSError):
                message = f"cannot write to the spool {spool}: {error.strerror or error}"
                raise SpoolError(message) from error
            raise

    def append(self, frame: bytes, is_row: int, after: int = -1) -> None:
        """Append one frame; when it returns, the frame is in the page cache, whole.

        Args:
            frame: from `protocol.encode_frame`.
            is_row: 1 for a ROW frame, else 0.
            after: append only if exactly so many frames were appended before; -1: in any case.

        Raises:
            SpoolError: nothing of the frame counts; the caller keeps it.
        """
        length = len(frame)
        if self.unsettled:
            self._settle()
        if self.size + length > SEGMENT_MAX_BYTES and self.rows_in_segment():
            self._next_segment()
        if after >= 0 and self.frames != after:
            return
        before = self.frames
        self.unsettled = True
        try:
            written = os.write(self._descriptor, frame)
        except OSError as error:
            self._next_or_raise(frame, is_row, after, error)
            return
        if written == length and self.frames == before:
            self.size += length
            self.rows += is_row
            self.frames += 1
            self.unsettled = False
            return
        self.unsettled = True  # a handler's records came between: measure before the next append
        if written != length:
            self._settle()
            self._next_or_raise(frame, is_row, after, OSError(errno.EFBIG, "a record was taken in part"))

    def never_fits(self, length: int) -> bool:
        """Whether a frame of `length` bytes is over the limit of a file's size (`ulimit -f`), also alone."""
        soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return soft != resource.RLIM_INFINITY and self._opening_bytes + length > soft

    def _next_or_raise(self, frame: bytes, is_row: int, after: int, error: OSError) -> None:
        """Append to the next segment where the limit of a file's size keeps a frame out of this one.

        Raises:
            SpoolError: `error` has another cause.
        """
        soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        over = soft != resource.RLIM_INFINITY and self.size + len(frame) > soft
        if not over or not self.rows_in_segment() or self.never_fits(len(frame)):
            message = f"cannot write to the spool {self.folder}: {error.strerror or error}"
            raise SpoolError(message) from error
        self._next_segment()
        self.append(frame, is_row, after)

    def rows_in_segment(self) -> bool:
        """Whether the current segment holds more than its opening frame."""
        return self.size > self._opening_bytes

    def verify(self) -> None:
        """See before a write that the descriptor is where the last one left it: one system call.

        Raises:
            SpoolError: it was closed, or is somebody else's, and the segment cannot be opened any more.
        """
        if self.unsettled:
            self._settle()
        try:
            if os.lseek(self._descriptor, 0, os.SEEK_CUR) != self.size:
                self._regain()
        except OSError:
            self._regain()

    def check(self) -> bool:
        """Take back what was closed under us: the segment's descriptor, and the lock.

        Returns:
            False when somebody deleted the segment: call `write_anew` before anything closes it.

        Raises:
            SpoolError: the segment cannot be opened any more.
        """
        if not leads_to(self._descriptor, self._identity):
            self._regain()
        if not leads_to(self._lock, self._lock_identity):
            with suppress(OSError):  # the lock file names us, too
                self._take_lock(self.folder, 0)
        with suppress(OSError):
            if not os.fstat(self._descriptor).st_nlink:
                return False
            self._note_base()
        return True

    def _note_base(self) -> None:
        """Remember the agent's base of the current segment, for `write_anew`."""
        path = base_path(self.folder, self.number)
        found = os.stat(path)
        seen = (self.number, found.st_ino, found.st_mtime_ns)
        if seen != self._base_seen and found.st_size <= MAX_SMALL_BYTES:
            self._base, self._base_seen = read_at(path, 0, MAX_SMALL_BYTES), seen

    def write_anew(self) -> None:
        """Put the current segment back into the spool, after somebody deleted it; the spool's folder exists.

        It keeps its name and its bytes, and gets the agent's base again: so the agent goes on where it was,
        also where agent.db went with the spool. Lost are payloads, and earlier segments that the agent had
        not taken in.

        Raises:
            SpoolError: that could not be done now; it is still open, and can be tried again.
        """
        hidden = self.folder.with_name(f"{TEMP_PREFIX}{self.name}")
        try:
            folder = self.folder
            if not folder.is_dir():
                folder = hidden
                self._make_folder(folder)
            if self._base_seen[0] == self.number:
                base_path(folder, self.number).write_bytes(self._base)
            self._copy_segment(folder)
            if folder is hidden:
                os.rename(hidden, self.folder)
        except OSError as error:
            _remove_begun(hidden)
            message = f"cannot write to the spool {self.folder}: {error.strerror or error}"
            raise SpoolError(message) from error

    def _copy_segment(self, folder: Path) -> None:
        """Go on in a copy of the current segment; a handler's records may come at any moment until then."""
        number, size = self.number, 0
        path = segment_path(folder, number)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        hidden = folder / f"{TEMP_PREFIX}{number}-{os.urandom(4).hex()}"
        copy = open_high(hidden, flags)
        copied = identity(copy)
        kept = _keep_open(copy)
        try:
            while True:
                self.verify()
                while size < self.size and number == self.number:
                    if not (part := os.pread(self._descriptor, self.size - size, size)):
                        raise OSError(errno.ENODATA, "the deleted segment was cut, too")
                    size += os.write(copy, part)
                if hidden.exists():
                    os.rename(hidden, path)
                # No calls from here on: a signal handler cannot come between.
                if number != self.number:
                    break
                if size == self.size and not self.unsettled:
                    previous = (self._descriptor, self._identity)
                    formerly = self._kept
                    self._descriptor = copy
                    self._identity = copied
                    self._kept = kept
                    self.trust_s = TRUST_S if copy >= FLOOR else 0.0
                    close_own(*previous)
                    if formerly is not None:
                        formerly.close()
                    break
        finally:
            if copy != self._descriptor:
                with suppress(OSError):  # it has its own name already, or went with the folder
                    os.unlink(hidden)
                close_own(copy, copied)
                if kept is not None:
                    kept.close()

    def _regain(self) -> None:
        """See that the descriptor leads to the end of the current segment."""
        try:
            if not leads_to(self._descriptor, self._identity):
                self._descriptor = -1  # not closed: the number is nobody's, or somebody else's
                path = segment_path(self.folder, self.number)
                found = open_high(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
                if identity(found) != self._identity:
                    os.close(found)
                    raise FileNotFoundError(errno.ENOENT, "the segment was replaced")
                self._descriptor = found
                self.trust_s = TRUST_S if found >= FLOOR else 0.0
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
        except OSError as error:
            message = f"cannot write to the spool {self.folder}: {error.strerror or error}"
            raise SpoolError(message) from error

    def _take_lock(self, folder: Path, flags: int) -> None:
        previous = (self._lock, self._lock_identity)
        self._lock = open_high(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags)
        self._lock_identity = identity(self._lock)
        lock_record_of_process(self._lock)
        if previous[0] != self._lock and previous[1] != self._lock_identity:
            close_own(*previous)  # of the same file, it would let go of the lock

    def _make_folder(self, folder: Path) -> None:
        """A stream's folder with its lock."""
        folder.mkdir(mode=0o700)
        self._take_lock(folder, os.O_CREAT | os.O_EXCL)
        os.write(self._lock, f"{os.getpid()} {process_start(os.getpid())}".encode())

    def settle(self) -> None:
        """Make `size`, `rows` and `frames` true again after an interrupted append.

        Raises:
            SpoolError: that could not be done now.
        """
        self.verify()

    def _settle(self) -> None:
        if not leads_to(self._descriptor, self._identity):
            self._regain()
        while self.unsettled:
            if self._next is not None:
                self._next_segment()
            before = (self.number, self.frames)
            tail, end, frames, rows = self._measure()
            if self.number != before[0] or self.frames != before[1]:
                continue  # a handler's records came between, and counted what was measured
            self.size += end
            self.rows += rows
            self.frames += frames
            self.unsettled = tail > end
            if tail > end:
                self._cut()
                return

    def _measure(self) -> tuple[int, int, int, int]:
        """Bytes beyond `size`; of these in whole frames, their number, and how many are rows."""
        end = frames = rows = 0
        try:
            real = os.fstat(self._descriptor).st_size
            tail = os.pread(self._descriptor, real - self.size, self.size) if real > self.size else b""
            for frame in iter_frames(tail):
                end = frame.end
                frames += 1
                rows += frame.kind == FrameKind.ROW
        except OSError as error:
            message = f"cannot repair the spool {self.folder}: {error.strerror or error}"
            raise SpoolError(message) from error
        return len(tail), end, frames, rows

    def _cut(self) -> None:
        """Undo a short write; where that is refused, leave the torn tail behind in its segment."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self._next_segment()
        else:
            self.unsettled = False

    def _next_segment(self) -> None:
        try:
            self._begin_segment(self.folder)
        except OSError as error:
            message = f"cannot begin a spool segment in {self.folder}: {error.strerror or error}"
            raise SpoolError(message) from error

    def _begin_segment(self, folder: Path) -> None:
        """Go on in a new segment: write it under a hidden name, give it its own, step over.

        A handler may come anywhere: it finds `_next` and finishes the step, or is finished here.
        """
        begun = self._next
        if begun is None:
            begun = self._write_opening(folder)
        if begun.number <= self.number:  # a handler's records took the step meanwhile
            close_own(begun.descriptor, begun.identity)
            os.unlink(begun.hidden)
            return
        self._next = begun
        self.unsettled = True
        try:
            os.rename(begun.hidden, segment_path(folder, begun.number))
        except FileNotFoundError:
            if not segment_path(folder, begun.number).exists():
                self._next = None
                raise
        previous = (self._descriptor, self._identity)
        formerly = self._kept
        if self._next is begun:
            self._descriptor = begun.descriptor
            self._identity = begun.identity
            self._kept = begun.kept
            self.trust_s = TRUST_S if begun.descriptor >= FLOOR else 0.0
            self._opening_bytes = begun.size
            self.size = begun.size
            self.number = begun.number
            self._next = None
            self.unsettled = False
            close_own(*previous)
            if formerly is not None:
                formerly.close()

    def _write_opening(self, folder: Path) -> _NextSegment:
        number = self.number + 1
        frame = self._opening_frame(number, self.rows)
        hidden = folder / f"{TEMP_PREFIX}{number}-{os.urandom(4).hex()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        descriptor = open_high(hidden, flags)
        try:
            if os.write(descriptor, frame) != len(frame):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - one way out
        except BaseException:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(hidden)
            raise
        return _NextSegment(
            descriptor, identity(descriptor), number, len(frame), hidden, _keep_open(descriptor)
        )

    def close(self) -> None:
        """Let go of the stream: the agent may then finish it."""
        with suppress(OSError):
            if leads_to(self._lock, self._lock_identity):
                os.ftruncate(self._lock, 0)
            elif self._lock >= 0:
                os.truncate(self.folder / LOCK_NAME, 0)
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptors and leave the stream as it is: in a forked child it is the parent's."""
        descriptors = ((self._descriptor, self._identity), (self._lock, self._lock_identity))
        self._descriptor = self._lock = -1
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()
        for descriptor, expected in descriptors:
            close_own(descriptor, expected)


def _keep_open(descriptor: int) -> Mapping | None:
    """Have a segment count as open for writing whoever closes its descriptor; None where that is refused."""
    with suppress(OSError, ImportError):  # no memory, or no descriptors to import by
        from rla_client.contract.mapping import Mapping  # noqa: PLC0415 - not at import of the package

        return Mapping(descriptor, 1)
    return None


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
        message = f"{os.fspath(path)} is a link: nothing is read from it"
        raise SpoolError(message) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, os.geteuid()}:
            whose = f"is not a plain file, or belongs to uid {found.st_uid}"
            message = f"{os.fspath(path)} {whose}: nothing is read from it"
            raise SpoolError(message)
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)
