"""Writer of a stream's segments.

Any code in the process may close our descriptors, and open its own files under their numbers. So callers
call `verify` before a write: the descriptor's offset must be that of the last write; and `check`, several
times a second, compares the file it leads to. `verify` may be skipped only for TRUST_S after the last write.

Signal handlers run after calls and at loop ends, and may raise, or call us again. So code that must not be
separated from a system call is straight-line code without calls: the bookkeeping after write(2), the check
before it, the step to the next segment after its rename. `unsettled` stays set where the bookkeeping was
not reached; the next append then measures the file, and finishes a step to the next segment.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rla_client.contract.errors import SpoolError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.filesystem.plain_files import MAX_SMALL_BYTES
from rla_client.contract.process.descriptors import FLOOR, Identity, close_own, identity, leads_to, open_high
from rla_client.contract.process.locks import lock_record_of_process
from rla_client.contract.spool.protocol import SEGMENT_MAX_BYTES, FrameKind, iter_frames
from rla_client.contract.spool.segments import base_path, new_stream_name, read_at, segment_path
from rla_client.contract.spool.writer_liveness import LOCK_NAME, process_start

if TYPE_CHECKING:
    from rla_client.stream.mapping import Mapping


TRUST_S = 0.0002  # during which our descriptor is trusted without a check; a training step takes longer
_NEW_SEGMENT = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
OpeningFrame = Callable[[int, int], bytes]  # (segment number, rows before it) → OPEN frame


def _remove_begun(folder: Path) -> None:
    """Remove a stream that was hardly begun, also where no descriptor is free to list it."""
    names = {LOCK_NAME, segment_path(folder, 1).name}
    with suppress(OSError):
        names.update(os.listdir(folder))
    for name in names:
        with suppress(OSError):
            os.unlink(folder / name)
    with suppress(OSError):
        os.rmdir(folder)


class _NextSegment(NamedTuple):
    """The next segment, written under a hidden name."""

    descriptor: int
    identity: Identity
    number: int
    size: int
    hidden: Path
    kept: Mapping | None


class SegmentWriter:
    """Appends frames to the segments of one stream. Not thread-safe: the outbox holds the lock.

    Attributes:
        name: of the stream; `folder`: its folder.
        number: current segment, from 1.
        size: bytes of complete frames in the current segment.
        rows: ROW frames in all segments so far.
        frames: frames that were appended, opening frames aside.
        unsettled: these numbers may lag behind the file until `verify`.
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
            self.abandon()  # refused or interrupted: the stream is unused
            for folder in (hidden, self.folder):
                _remove_begun(folder)
            if isinstance(error, OSError):
                raise SpoolError(f"cannot write to the spool {spool}: {error.strerror or error}") from error
            raise

    def append(self, frame: bytes, is_row: int, after: int = -1) -> None:
        """Append one frame; on return it is completely in the page cache.

        Args:
            frame: from `protocol.encode_frame`.
            is_row: 1 for a ROW frame, else 0.
            after: append only if exactly so many frames were appended before; -1: in any case.

        Raises:
            SpoolError: no byte of the frame counts; the caller keeps it.
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
        self.unsettled = True  # a signal handler has appended meanwhile: measure before the next append
        if written != length:
            self._settle()
            self._next_or_raise(frame, is_row, after, OSError(errno.EFBIG, "a record was taken in part"))

    def never_fits(self, length: int) -> bool:
        """Whether a frame of `length` bytes is over the limit of a file's size (`ulimit -f`), also alone."""
        return _over_file_limit(self._opening_bytes + length)

    def _next_or_raise(self, frame: bytes, is_row: int, after: int, error: OSError) -> None:
        """Append to the next segment where a frame exceeds the limit of a file's size in this one.

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
        """Whether the current segment has more than its opening frame."""
        return self.size > self._opening_bytes

    def verify(self) -> None:
        """Check before a write that the descriptor's offset is that of the last write: one system call.

        After an interrupted append it first corrects `size`, `rows` and `frames`.

        Raises:
            SpoolError: it was closed or replaced, and the segment cannot be reopened.
        """
        if self.unsettled:
            self._settle()
        try:
            if os.lseek(self._descriptor, 0, os.SEEK_CUR) != self.size:
                self._regain()
        except OSError:
            self._regain()

    def check(self) -> bool:
        """Reopen descriptors that were closed under us: the segment's, and the lock's.

        Returns:
            False when somebody deleted the segment: call `write_anew` before anything closes it.

        Raises:
            SpoolError: the segment cannot be reopened.
        """
        if not leads_to(self._descriptor, self._identity):
            self._regain()
        if not leads_to(self._lock, self._lock_identity):
            with suppress(OSError):  # the lock file names us, too
                self._take_lock(self.folder, 0)
        with suppress(OSError):
            if not os.fstat(self._descriptor).st_nlink:
                return False
            path = base_path(self.folder, self.number)  # the agent's base, for `write_anew`
            found = os.stat(path)
            seen = (self.number, found.st_ino, found.st_mtime_ns)
            if seen != self._base_seen and found.st_size <= MAX_SMALL_BYTES:
                self._base, self._base_seen = read_at(path, 0, MAX_SMALL_BYTES), seen
        return True

    def write_anew(self) -> None:
        """Restore the current segment in the spool, after somebody deleted it; the spool's folder exists.

        It keeps its name and its bytes, and gets the agent's base again: so the agent continues where it was,
        also where agent.db was deleted with the spool. Payloads, and earlier segments that the agent had not
        ingested, are lost.

        Raises:
            SpoolError: it failed for now; the segment is still open, and this can be retried.
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
        """Continue in a copy of the current segment; a signal handler may append at any moment until then."""
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
                with suppress(OSError):  # renamed already, or removed with the folder
                    os.unlink(hidden)
                close_own(copy, copied)
                if kept is not None:
                    kept.close()

    def _regain(self) -> None:
        """Check that the descriptor leads to the end of the current segment."""
        try:
            if not leads_to(self._descriptor, self._identity):
                self._descriptor = -1  # not closed: the number is unused, or belongs to another file
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
            close_own(*previous)  # closing another descriptor of the file would release the lock

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
                continue  # a signal handler has appended meanwhile, and counted the measured bytes
            self.size += end
            self.rows += rows
            self.frames += frames
            self.unsettled = tail > end
            if tail > end:
                try:
                    os.ftruncate(self._descriptor, self.size)
                except OSError:  # the torn tail stays in its segment
                    self._next_segment()
                else:
                    self.unsettled = False
                return

    def _measure(self) -> tuple[int, int, int, int]:
        """Bytes beyond `size`; those of complete frames, the number of these, and how many are rows."""
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
        """Continue in a new segment: write it under a hidden name, rename it, and switch to it.

        A signal handler may run anywhere: it sees `_next` and finishes the step, or this call does.
        """
        begun = self._next
        if begun is None:
            begun = self._write_opening(folder)
        if begun.number <= self.number:  # a signal handler's append took the step meanwhile
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
        """Release the stream, so that the agent may finish it."""
        with suppress(OSError):
            if leads_to(self._lock, self._lock_identity):
                os.ftruncate(self._lock, 0)
            elif self._lock >= 0:
                os.truncate(self.folder / LOCK_NAME, 0)
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptors and leave the stream unchanged: in a forked child it is the parent's."""
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
    """Keep a segment open for writing even if its descriptor is closed; None where that is refused."""
    with suppress(OSError, ImportError):  # no memory, or no descriptor for an import
        from rla_client.stream.mapping import Mapping  # noqa: PLC0415 - not at import of the package

        return Mapping(descriptor, 1)
    return None
