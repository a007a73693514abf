"""Writing the spool: `SegmentWriter` appends frames to the segments of one stream; `Quota` says how many may.

*Descriptors.* Whatever runs in the process may close ours, and open its own files under their numbers. So
whoever writes calls `verify` first: the descriptor must be where the last write left it; and `check`, some
times a second, asks which file it leads to. One that is not ours any more is forgotten, and the file opened
again. Without `verify` only TRUST_S after the last write: nobody opens FLOOR files in so short a time.

*Interrupts.* Signal handlers run after calls and at loop ends, and may raise, or call us again. So what must
not be parted from a system call is straight-line code without calls: the bookkeeping after write(2), the
check before it, the step to the next segment after its rename. `unsettled` stays set where the bookkeeping
was not reached; the next append then measures the file, and finishes a step to the next segment.

*Shares.* `free` is what is left below `spool_max_bytes`, or above the disk's reserve where that is less. A
run may hold at most a multiple of it: SHARE_ROWS times for rows, less for texts, once for media. So a run
that floods stops while something is left, and the next run finds its share of that. Media stop at half of the
spool, texts at three quarters, rows at nearly all of it; what a run holds of media and texts does not count
against its rows. No sum over all runs reaches the limit, and nobody has to be asked.

*Counting.* All files of all streams count: segments, blobs, and what dead writers left. A count is a walk
over the streams, COUNT_TURN_S a call, so that training hardly waits for it. A process counts again once
it has written its part: half the free bytes, divided by the streams that are being written; and RECOUNT_S
after it was refused something. All streams of one run share, which their opening frames name; a process
reads that of each stream once.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rla_client.contract.descriptors import (
    FLOOR,
    Identity,
    close_own,
    identity,
    leads_to,
    lock_record_of_process,
    open_high,
)
from rla_client.contract.errors import SpoolError
from rla_client.contract.files import MAX_SMALL_BYTES, TEMP_PREFIX
from rla_client.contract.opening import stream_opening
from rla_client.contract.protocol import SEGMENT_MAX_BYTES, FrameKind, iter_frames
from rla_client.contract.segments import (
    BLOBS_NAME,
    LOCK_NAME,
    base_path,
    new_stream_name,
    process_start,
    read_at,
    segment_path,
    stream_names,
    stream_size,
)

if TYPE_CHECKING:
    from rla_client.stream.memory import Mapping

TRUST_S = 0.0002  # that our descriptor stays ours without being asked; a training step takes longer
SHARE_MEDIA = 1  # of what is free; one run alone then holds 1/2 of the limit
SHARE_TEXT = 3  # 3/4
SHARE_ROWS = 16  # 16/17
CHECK_BYTES = 4 << 20  # a process writes at most so much before it counts again
TURN_BYTES = 64 << 10  # and so much between the turns of a count
COUNT_TURN_S = 0.0005  # of a training call, some dozen streams
RECOUNT_S = 1.0
FRESH_S = 0.01  # what is written in between is no more than memory can copy
WRITTEN_S = 60.0  # a stream that nobody wrote to for so long takes no part in what may be written next

_NEW_SEGMENT = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_runs: dict[Path, dict[str, object]] = {}  # by spool: run of each stream that this process counted
OpeningFrame = Callable[[int, int], bytes]  # (segment number, rows before it) → OPEN frame


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
        name: of the stream; `folder`, where it lies, likewise.
        number: current segment, from 1.
        size: bytes of the current segment that are whole frames.
        rows: ROW frames in all segments so far.
        frames: frames that were appended, opening frames aside.
        unsettled: these numbers may lag behind the file, until `verify`.
        trust_s: seconds after a write within which the descriptor needs no `verify`.
    """

    def __init__(self, spool: Path, opening_frame: OpeningFrame) -> None:
        """Create the stream: folder, lock, first segment.

        Raises:
            SpoolError: the spool cannot be written.
        """
        self.name = new_stream_name()
        self.folder = spool / self.name
        self.number = self.size = self.rows = self.frames = 0
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
                raise SpoolError(f"cannot write to the spool {spool}: {error.strerror or error}") from error
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
        return _over_file_limit(self._opening_bytes + length)

    def _next_or_raise(self, frame: bytes, is_row: int, after: int, error: OSError) -> None:
        """Append to the next segment where the limit of a file's size keeps a frame out of this one.

        Raises:
            SpoolError: `error` has another cause.
        """
        over = _over_file_limit(self.size + len(frame))
        if not over or not self.rows_in_segment() or self.never_fits(len(frame)):
            raise self._cannot("write to the spool", error) from error
        self._next_segment()
        self.append(frame, is_row, after)

    def _cannot(self, what: str, error: OSError) -> SpoolError:
        return SpoolError(f"cannot {what} {self.folder}: {error.strerror or error}")

    def rows_in_segment(self) -> bool:
        """Whether the current segment holds more than its opening frame."""
        return self.size > self._opening_bytes

    def verify(self) -> None:
        """See before a write that the descriptor is where the last one left it: one system call.

        After an interrupted append it first makes `size`, `rows` and `frames` true again.

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
            path = base_path(self.folder, self.number)  # the agent's, for `write_anew`
            found = os.stat(path)
            seen = (self.number, found.st_ino, found.st_mtime_ns)
            if seen != self._base_seen and found.st_size <= MAX_SMALL_BYTES:
                self._base, self._base_seen = read_at(path, 0, MAX_SMALL_BYTES), seen
        return True

    def write_anew(self) -> None:
        """Put the current segment back into the spool, after somebody deleted it; the spool's folder exists.

        It keeps its name and its bytes, and gets the agent's base again: so the agent continues where it was,
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
            raise self._cannot("write to the spool", error) from error

    def _copy_segment(self, folder: Path) -> None:
        """Go on in a copy of the current segment; a handler's records may come at any moment until then."""
        number, size = self.number, 0
        hidden = folder / f"{TEMP_PREFIX}{number}-{os.urandom(4).hex()}"
        copy = open_high(hidden, _NEW_SEGMENT)
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
                    os.rename(hidden, segment_path(folder, number))
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
            raise self._cannot("write to the spool", error) from error

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
                try:
                    os.ftruncate(self._descriptor, self.size)
                except OSError:  # the torn tail stays behind in its segment
                    self._next_segment()
                else:
                    self.unsettled = False
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
            raise self._cannot("repair the spool", error) from error
        return len(tail), end, frames, rows

    def _next_segment(self) -> None:
        try:
            self._begin_segment(self.folder)
        except OSError as error:
            raise self._cannot("begin a spool segment in", error) from error

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
        descriptor = open_high(hidden, _NEW_SEGMENT)
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


def _over_file_limit(size: int) -> bool:
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return soft != resource.RLIM_INFINITY and size > soft


def _keep_open(descriptor: int) -> Mapping | None:
    """Have a segment count as open for writing whoever closes its descriptor; None where that is refused."""
    with suppress(OSError, ImportError):  # no memory, or no descriptors to import by
        from rla_client.stream.memory import Mapping  # noqa: PLC0415 - not at import of the package

        return Mapping(descriptor, 1)
    return None


class Quota:
    """What one process may put into the spool.

    Args:
        spool: folder of all streams of the machine.
        max_bytes: bound over all streams.
        min_free_fraction: part of the disk, 0…1, that the spool leaves free.
    """

    def __init__(self, spool: Path, max_bytes: int, min_free_fraction: float) -> None:
        self._spool = spool
        self._max_bytes = max_bytes
        self._min_free_fraction = min_free_fraction
        self._runs = _runs.setdefault(spool, {})
        self.begin("", None)

    def begin(self, stream: str, run: object) -> None:
        """Say which stream this process writes, and of which run it is."""
        self._stream, self._run = stream, run
        self._rest: Iterator[str] | None = None  # streams that the count under way has still to visit
        self._used = self._own = self._blobs = 0  # of all streams, of our run's, of their blobs, as counted
        self._counted, self._written = [0, 0, 0], 0  # the same, by the count under way; streams written to
        self._disk_left = self._max_bytes
        self._spent = self._frames = 0  # of this process: since the last count; ever, but for its rows
        self._part = 0  # what it may spend before the next one
        self._refused = False
        self._last_count = float("-inf")  # monotonic
        self._unseen: str | None = None

    @property
    def look_after(self) -> int:
        """How many more bytes may be written before the next look."""
        until_count = TURN_BYTES if self._rest is not None else self._part - self._spent
        return max(min(self.room(SHARE_ROWS), until_count), 0)

    def spend(self, size: int, no_rows: int = 0) -> None:
        """Note bytes that this process wrote (negative: took back), `no_rows` of them in other frames."""
        self._spent += size
        self._frames += no_rows

    @property
    def overspent(self) -> bool:
        """Whether this process wrote more than its part since the last count."""
        return self._spent > self._part

    @property
    def stale(self) -> bool:
        """Whether it is time to count before much is written at once."""
        return self.overspent or time.monotonic() > self._last_count + FRESH_S

    def room(self, share: int) -> int:
        """How many bytes our run may still add, as records of this share; negative where it holds more.

        Where the spool cannot be looked at (it was renamed, say), what was counted last holds for rows.
        """
        if self._unseen is not None and share != SHARE_ROWS:
            return -1
        free = min(self._max_bytes - self._used, self._disk_left) - self._spent
        own = self._own + self._spent
        if share == SHARE_ROWS:
            own = max(own - self._blobs - self._frames, 0)
        return (share * free - own) // (share + 1)

    def why_full(self, share: int, size: int = 0) -> str | None:
        """Say why `size` more bytes of this share may not be spooled, or None."""
        if size <= self.room(share):
            return None
        self._refused = True
        if self._unseen is not None:
            return self._unseen
        used, left = self._used + self._spent, self._disk_left - self._spent
        if left < self._max_bytes - used:
            return f"the disk of {self._spool} has only {max(left, 0) >> 20} MiB left above its reserve"
        whole = f"the spool {self._spool} holds {used >> 20} MiB, its limit is {self._max_bytes >> 20} MiB"
        return f"{whole}, of which {self._own + self._spent >> 20} MiB are this run's"

    def look(self, *, count: bool = False) -> None:
        """Look at the disk; continue a count, or begin one when it is time; with `count`, count all now."""
        until = float("inf") if count else time.monotonic() + COUNT_TURN_S
        if count:
            self._rest = None
        try:
            disk = os.statvfs(self._spool)
            left = disk.f_bavail - disk.f_blocks * self._min_free_fraction
            self._disk_left = int(left * disk.f_frsize) + self._spent
            due = self._spent >= self._part or (
                self._refused and time.monotonic() >= self._last_count + RECOUNT_S
            )
            if self._rest is None and (due or count):
                names = stream_names(self._spool)
                for gone in set(self._runs).difference(names):
                    self._runs.pop(gone, None)
                self._rest = iter(names)
                self._counted, self._written = [0, 0, 0], 0
                self._refused = False
            self._count_on(until)
            self._unseen = None
        except OSError as error:
            self._rest = None
            self._unseen = f"the spool {self._spool} cannot be read: {error.strerror}"

    def _count_on(self, until: float) -> None:
        if self._rest is None:
            return
        for name in self._rest:
            if name != self._stream:
                self._visit(name)
            if time.monotonic() > until:
                return
        if self._stream:
            self._visit(self._stream)  # last: what we wrote during the count is in it
        self._rest = None
        self._disk_left -= self._spent
        self._used, self._own, self._blobs = self._counted
        self._spent = 0
        self._last_count = time.monotonic()
        half = min(self._max_bytes - self._used, self._disk_left) // 2
        self._part = min(CHECK_BYTES, max(half // max(self._written, 1), TURN_BYTES))

    def _visit(self, name: str) -> None:
        size, changed = stream_size(self._spool / name)
        self._counted[0] += size
        self._written += time.time() - changed < WRITTEN_S
        if name == self._stream or (self._run is not None and self._run_of(name) == self._run):
            self._counted[1] += size
            self._counted[2] += stream_size(self._spool / name / BLOBS_NAME)[0]

    def _run_of(self, name: str) -> object:
        if name not in self._runs and (opening := stream_opening(self._spool / name)) is not None:
            self._runs[name] = opening.run
        return self._runs.get(name)
