"""Checkpoints: from a job to a durable `.pt` file, and the shared memory that is left over.

`run_checkpoint` may be killed anywhere and run again; each step is safe to repeat:

1. If the final file carries this job's stamp, the work is done; if a newer save of the same run has
   taken its name, or retention has removed it since, there is nothing to do.
2. The bytes go to a temp file named after the job (a replay starts it afresh), then fsync.
3. Rename, fsync of the folder. From here on the checkpoint is durable.
4. `release`: the slot becomes FREE, or the blob is removed. Then `retain` may delete older ones.

Shared memory is read by pread, never mapped: a file that somebody truncates gives a short read and
not SIGBUS. A slot is believed only if it is BUSY with the job's number before and after reading.
Nothing here unpickles; a skeleton is copied as bytes. Jobs of one folder must not run in parallel.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from rla_agent.sinks.torch_zip import TORCH_FORMAT, TorchZip
from rla_client.checkpoint_job import (
    ARENA_DATA_OFFSET,
    ARENA_FOLDER,
    ARENA_HEADER,
    ARENA_MAGIC,
    ARENA_OWNER_MAX,
    ARENA_OWNER_OFFSET,
    ARENA_PREFIX,
    ARENA_VERSION,
    MAX_SLOTS,
    SLOT_BUSY,
    SLOT_FREE,
    SLOT_HEADER,
    STAMP_RECORD,
    ArenaName,
    ArenaSource,
    BlobSource,
    CheckpointJob,
    slot_header_offset,
    spool_key,
    storage_offsets,
    stream_key,
)
from rla_client.checkpoint_retention import list_saved, read_stamp, remove_superseded
from rla_client.snapshot_job import SnapshotJob
from rla_client.storage import TEMP_PREFIX, fsync_folder

PIECE_BYTES = 4 << 20  # read, checksummed and written at a time
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Outcome(Enum):
    """What became of a job. None of these is to be tried again."""

    WRITTEN = "written"
    ALREADY = "already"  # an earlier try had got so far
    SUPERSEDED = "superseded"  # newer checkpoints have taken its place
    LOST = "lost"  # its bytes are gone: a reboot, a cleared /dev/shm, a cut before the fsync
    REFUSED = "refused"  # it names something that is not its own
    REMOVED = "removed"  # the item's folder is gone


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """How a job ended; `reason` is for the operator, `size` the file's bytes."""

    outcome: Outcome
    reason: str = ""
    size: int = 0

    @property
    def durable(self) -> bool:
        """True when the file is there, so that older ones may go."""
        return self.outcome in {Outcome.WRITTEN, Outcome.ALREADY}


class _SourceError(Exception):
    """The bytes of a job cannot be had."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        self.result = CheckpointResult(outcome, reason)
        super().__init__(reason)


def run_checkpoint(job: CheckpointJob, blobs: Path, final: Path) -> CheckpointResult:
    """Write one checkpoint, durably, or say why that cannot be.

    Args:
        job: from the frame, decoded and so checked.
        blobs: blob folder of the job's stream; its parent is the stream's spool folder.
        final: where the file goes; its last part is `job.final_name`.

    Raises:
        OSError: the disk did not take it (full, broken); nothing has changed, try again later.
    """
    if not final.parent.is_dir():
        return CheckpointResult(Outcome.REMOVED, f"the folder {final.parent} is gone")
    there = read_stamp(final)
    if there is not None and there.token == job.stamp.token:
        fsync_folder(final.parent)  # the rename may be younger than the last sync
        return CheckpointResult(Outcome.ALREADY, size=final.stat().st_size)
    if there is not None and there.run == job.stamp.run and there.order > job.stamp.order:
        return CheckpointResult(Outcome.SUPERSEDED, "a later save has its name")
    temp = final.parent / f"{TEMP_PREFIX}{job.stamp.token}"
    with suppress(FileNotFoundError):
        temp.unlink()
    try:
        if isinstance(job.source, ArenaSource):
            _write_from_arena(job, job.source, blobs, temp)
        else:
            _take_blob(job, job.source, blobs, temp)
        size = temp.stat().st_size
        os.replace(temp, final)
    except _SourceError as error:
        return _explain_loss(job, final, error.result)
    finally:
        with suppress(OSError):
            temp.unlink()
    fsync_folder(final.parent)
    return CheckpointResult(Outcome.WRITTEN, size=size)


def release(job: CheckpointJob | SnapshotJob, blobs: Path) -> None:
    """Give the job's slot back or remove its blob. Call it when the job has run, again if unsure."""
    source = job.source
    if isinstance(source, BlobSource):
        with suppress(OSError):
            (blobs / source.blob).unlink()
        return
    try:
        descriptor = _open_arena(source, blobs, os.O_RDWR)
    except _SourceError:
        return
    try:
        with suppress(_SourceError):
            _check_slot(descriptor, source)
            header = SLOT_HEADER.pack(SLOT_FREE, source.number)
            os.pwrite(descriptor, header, slot_header_offset(source.slot))
    finally:
        os.close(descriptor)


def retain(job: CheckpointJob, folder: Path) -> list[str]:
    """Delete what the job's retention no longer keeps; call it once the job's file is durable.

    Returns:
        File names that were removed. Files without a stamp, or of another run, never are.
    """
    return remove_superseded(folder, job.stamp.name, job.stamp.run, job.retention)


def sweep_arenas(spool: Path, live_streams: Collection[str]) -> list[str]:
    """Remove shared memory that nobody will read again.

    An arena goes when no living process holds its lock and either its stream belongs to `spool`
    and is not in `live_streams`, or its stream's folder is gone (an agent that is no more).

    Args:
        spool: this agent's spool folder.
        live_streams: names of streams that have, or may still get, checkpoint jobs to do.

    Returns:
        Names of the files that were removed.
    """
    own = spool_key(spool)
    live = {stream_key(stream) for stream in live_streams}
    removed = []
    try:
        entries = os.listdir(ARENA_FOLDER)
    except OSError:
        return []
    for entry in entries:
        name = ArenaName.parse(entry) if entry.startswith(ARENA_PREFIX) else None
        if name is None or name.uid != os.geteuid() or (name.spool_key == own and name.stream_key in live):
            continue
        if _is_abandoned(entry, own=name.spool_key == own):
            with suppress(OSError):
                os.unlink(os.path.join(ARENA_FOLDER, entry))
                removed.append(entry)
    return removed


def _is_abandoned(entry: str, *, own: bool) -> bool:
    try:
        descriptor = os.open(os.path.join(ARENA_FOLDER, entry), _READ_FLAGS)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if own:
            return True
        header = os.pread(descriptor, ARENA_HEADER.size, 0)
        magic, _, _, _, length = ARENA_HEADER.unpack(header)
        folder = os.pread(descriptor, min(length, ARENA_OWNER_MAX), ARENA_OWNER_OFFSET)
        return bool(magic == ARENA_MAGIC and folder and not os.path.lexists(folder))
    except (OSError, ValueError, OverflowError):
        return False  # a client lives, or the header is not written yet
    finally:
        os.close(descriptor)


def _explain_loss(job: CheckpointJob, final: Path, result: CheckpointResult) -> CheckpointResult:
    """Lost bytes are no loss when the work was done before and retention has moved on since."""
    newer = [
        entry
        for entry in list_saved(final.parent, job.stamp.name)
        if entry.stamp.run == job.stamp.run and entry.stamp.order > job.stamp.order
    ]
    most = job.retention.max_to_keep
    if result.outcome is Outcome.LOST and most is not None and len(newer) >= most:
        return CheckpointResult(Outcome.SUPERSEDED, "newer ones have taken its place")
    return result


# -- from shared memory -------------------------------------------------------------------------


def _write_from_arena(job: CheckpointJob, source: ArenaSource, blobs: Path, temp: Path) -> None:
    descriptor = _open_arena(source, blobs, os.O_RDONLY)
    try:
        slot_bytes = _check_slot(descriptor, source)
        offsets, needed = storage_offsets(source.skeleton_bytes, source.sizes)
        if needed > slot_bytes:
            raise _SourceError(Outcome.REFUSED, "the job is larger than its slot")
        base = ARENA_DATA_OFFSET + source.slot * slot_bytes
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temp, flags, 0o644), "wb") as file:
            _write_zip(file, job, source, descriptor, [base + offset for offset in (0, *offsets)])
            _check_slot(descriptor, source)
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.close(descriptor)


def _write_zip(
    file: BinaryIO, job: CheckpointJob, source: ArenaSource, descriptor: int, begins: list[int]
) -> None:
    size = source.skeleton_bytes
    stamp = job.stamp.encode()
    with TorchZip(file) as zipped:
        zipped.add("data.pkl", size, _pieces(descriptor, begins[0], size))
        zipped.add("byteorder", len(job.byteorder), [job.byteorder.encode("ascii")])
        for key, (begin, size) in enumerate(zip(begins[1:], source.sizes, strict=True)):
            zipped.add(f"data/{key}", size, _pieces(descriptor, begin, size))
        zipped.add("version", len(TORCH_FORMAT), [TORCH_FORMAT])
        zipped.add(STAMP_RECORD, len(stamp), [stamp])


def _pieces(descriptor: int, begin: int, size: int) -> Iterator[bytes]:
    end = begin + size
    while begin < end:
        piece = os.pread(descriptor, min(PIECE_BYTES, end - begin), begin)
        if not piece:
            raise _SourceError(Outcome.LOST, "the shared memory was cut short")
        begin += len(piece)
        yield piece


def _open_arena(source: ArenaSource, blobs: Path, mode: int) -> int:
    """Open the arena of a job after checking that it is this user's and this stream's."""
    name = ArenaName.parse(source.arena)
    stream = blobs.parent
    expected = (os.geteuid(), spool_key(stream.parent), stream_key(stream.name))
    if name is None or (name.uid, name.spool_key, name.stream_key) != expected:
        raise _SourceError(Outcome.REFUSED, f"{source.arena!r} is not an arena of this stream")
    try:
        descriptor = os.open(
            os.path.join(ARENA_FOLDER, source.arena), mode | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        )
    except OSError as error:
        raise _SourceError(Outcome.LOST, f"its shared memory is gone: {error.strerror}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise _SourceError(Outcome.REFUSED, f"{source.arena} is not a private file of this user")
    return descriptor


def _check_slot(descriptor: int, source: ArenaSource) -> int:
    """Bytes per slot, after checking that the slot still holds this very job."""
    header = os.pread(descriptor, ARENA_HEADER.size, 0)
    state = os.pread(descriptor, SLOT_HEADER.size, slot_header_offset(source.slot))
    if len(header) < ARENA_HEADER.size or len(state) < SLOT_HEADER.size:
        raise _SourceError(Outcome.LOST, "the shared memory was cut short")
    magic, version, slots, slot_bytes, _ = ARENA_HEADER.unpack(header)
    if magic != ARENA_MAGIC or version != ARENA_VERSION or not source.slot < slots <= MAX_SLOTS:
        raise _SourceError(Outcome.REFUSED, "this is no arena of a version that this release reads")
    if SLOT_HEADER.unpack(state) != (SLOT_BUSY, source.number):
        raise _SourceError(Outcome.LOST, "its slot holds another checkpoint by now")
    return int(slot_bytes)


# -- from a blob --------------------------------------------------------------------------------


def _take_blob(job: CheckpointJob, source: BlobSource, blobs: Path, temp: Path) -> None:
    """Bring a blob beside its final place: by a second link on the same file system, else by copying."""
    path = blobs / source.blob
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        raise _SourceError(Outcome.LOST, f"its blob is gone: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise _SourceError(Outcome.REFUSED, f"the blob {source.blob} is not a file of this user")
        stamp = read_stamp(path) if found.st_size == source.size else None
        if stamp is None or stamp.token != job.stamp.token:
            raise _SourceError(Outcome.LOST, f"the blob {source.blob} is not whole")
        try:
            os.link(path, temp, follow_symlinks=False)
            os.fsync(descriptor)
        except OSError:
            with suppress(FileNotFoundError):
                temp.unlink()
            _copy(descriptor, source.size, temp)
    finally:
        os.close(descriptor)


def _copy(descriptor: int, size: int, temp: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temp, flags, 0o644), "wb") as file:
        file.writelines(_pieces(descriptor, 0, size))
        file.flush()
        os.fsync(file.fileno())
