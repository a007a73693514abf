"""Checkpoints and snapshots of a training: from a job to durable files; and where the bytes of jobs are.

`run_checkpoint` (a `.pt`) and `run_snapshot` (`itr_N.pkl`, `params.pkl`) may be killed anywhere and run
again; each step is safe to repeat:

1. A final file that carries this job's stamp or token is done; one of a newer save of the same run stays, and
   where retention has removed the checkpoint since, there is nothing to do.
2. The bytes go to a temp file named after the job and this process (a replay starts it afresh), then fsync.
3. Each name left gets the file by rename, the last by the temp file itself, those before (of a snapshot)
   by a second link; then fsync of the folder. From here on it is durable.
4. `release`: the slot becomes FREE, or the blob is removed. Then `retain` may delete older checkpoints.

The bytes lie in a slot of shared memory, or in a blob in the stream's spool folder. Shared memory is read by
pread, never mapped: a file that somebody truncates gives a short read and not SIGBUS. A slot is believed only
if it is BUSY with the job's number before and after reading. A blob is believed only if it is of this user,
has the size that the job says and carries its token.

Nothing here unpickles; a skeleton is copied as bytes. Jobs of one folder must not run in parallel.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from rla_client.contract.checkpoint.checkpoint_retention import list_saved, remove_superseded
from rla_client.contract.checkpoint.stamp import STAMP_RECORD, read_stamp
from rla_client.contract.checkpoint.torch_zip import TORCH_FORMAT, TorchZip
from rla_client.contract.filesystem.atomic_write import NEW_FLAGS, TEMP_PREFIX, fsync_folder, replacing
from rla_client.contract.filesystem.modes import file_mode, give_mode
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.job.arena_layout import (
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
    ArenaName,
    SlotRef,
    slot_header_offset,
    spool_key,
    stream_key,
)
from rla_client.contract.job.checkpoint_job import CheckpointJob
from rla_client.contract.job.job_source import ArenaSource, BlobSource, RawBlobSource, storage_offsets
from rla_client.contract.job.snapshot_footer import saved_order
from rla_client.contract.job.snapshot_job import SnapshotJob
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import try_lock
from rla_client.contract.spool.writer_liveness import process_start

_OWN_TEMP = re.compile(r"-(?P<process>\d+-\d+)(-2)?\Z")
PIECE_BYTES = 4 << 20  # read, checksummed and written at a time
# these say nothing of the file: the job is tried again
SHORTAGES = frozenset((errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class Outcome(Enum):
    """What became of a job. Only one that ended as LATER is to be tried again."""

    WRITTEN = "written"
    ALREADY = "already"  # an earlier try had got so far
    KEPT = "kept"  # a file of this name was there and stays
    SUPERSEDED = "superseded"  # newer checkpoints have taken its place
    LOST = "lost"  # its bytes are gone: a reboot, a cleared /dev/shm, a cut before the fsync
    REFUSED = "refused"  # it names something that is not its own
    REMOVED = "removed"  # the item's folder is gone: nothing is made again
    FAILED = "failed"  # it cannot be done
    LATER = "later"  # disk full and the like: its bytes stay


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended; `reason` is for the operator, of one that was not done."""

    outcome: Outcome
    reason: str = ""

    @property
    def durable(self) -> bool:
        """True when the file is there, so that older ones may go."""
        return self.outcome in {Outcome.WRITTEN, Outcome.ALREADY}


class SourceError(Exception):
    """The bytes of a job cannot be had."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        self.result = JobResult(outcome, reason)
        super().__init__(reason)


def run_checkpoint(job: CheckpointJob, blobs: Path, final: Path) -> JobResult:
    """Write one checkpoint, durably, or say why that cannot be.

    Args:
        job: from the frame, decoded and so checked.
        blobs: blob folder of the job's stream; its parent is the stream's spool folder.
        final: where the file goes; its last part is `job.final_name`.

    Raises:
        OSError: the disk did not take it (full, broken); nothing has changed, try again later.
    """
    if not final.parent.is_dir():
        return JobResult(Outcome.REMOVED, f"the folder {final.parent} is gone")
    there = read_stamp(final)
    if there is not None and there.token == job.stamp.token:
        fsync_folder(final.parent)  # the rename may be younger than the last sync
        return JobResult(Outcome.ALREADY)
    if there is not None and there.run == job.stamp.run and there.order > job.stamp.order:
        return JobResult(Outcome.SUPERSEDED, "a later save has its name")
    try:
        with replacing(final, temp=fresh_temp(final.parent, job.stamp.token)) as temp:
            if isinstance(job.source, ArenaSource):
                _write_from_arena(job, job.source, blobs, temp)
            elif isinstance(job.source, RawBlobSource):
                _write_from_blob(job, job.source, blobs, temp)
            else:
                take_blob(job.source, job.stamp.token, blobs, temp, _token_of)
    except SourceError as error:
        return _explain_loss(job, final, error.result)
    return JobResult(Outcome.WRITTEN)


def retain(job: CheckpointJob, folder: Path) -> list[str]:
    """Delete what the job's retention no longer keeps; call it once the job's file is durable.

    Returns:
        File names that were removed. Files without a stamp, or of another run, never are.
    """
    return remove_superseded(folder, job.stamp.name, job.stamp.run, job.retention)


def _explain_loss(job: CheckpointJob, final: Path, result: JobResult) -> JobResult:
    """Lost bytes are no loss when the work was done before and retention has moved on since."""
    newer = [
        entry
        for entry in list_saved(final.parent, job.stamp.name)
        if entry.stamp.run == job.stamp.run and entry.stamp.order > job.stamp.order
    ]
    most = job.retention.max_to_keep
    if result.outcome is Outcome.LOST and most is not None and len(newer) >= most:
        return JobResult(Outcome.SUPERSEDED, "newer ones have taken its place")
    return result


def _write_from_arena(job: CheckpointJob, source: ArenaSource, blobs: Path, temp: Path) -> None:
    offsets, needed = storage_offsets(source.skeleton_bytes, source.sizes)
    with opened_slot(source, blobs, needed) as (descriptor, base), created(temp) as file:
        _write_zip(file, job, source, descriptor, [base + offset for offset in (0, *offsets)])


def _write_from_blob(job: CheckpointJob, source: RawBlobSource, blobs: Path, temp: Path) -> None:
    offsets, needed = storage_offsets(source.skeleton_bytes, source.sizes)
    token = job.stamp.token.encode("ascii")
    with opened_blob(source, blobs) as descriptor:
        if source.size != needed + len(token):
            raise SourceError(Outcome.REFUSED, "the job is not of its blob's size")
        if os.pread(descriptor, len(token), needed) != token:
            raise SourceError(Outcome.LOST, f"the blob {source.blob} is not whole")
        with created(temp) as file:
            _write_zip(file, job, source, descriptor, [0, *offsets])


def _write_zip(
    file: BinaryIO,
    job: CheckpointJob,
    source: ArenaSource | RawBlobSource,
    descriptor: int,
    begins: list[int],
) -> None:
    size = source.skeleton_bytes
    stamp = job.stamp.encode()
    with TorchZip(file) as zipped:
        zipped.add("data.pkl", size, pieces(descriptor, begins[0], size))
        zipped.add("byteorder", len(job.byteorder), [job.byteorder.encode("ascii")])
        for key, (begin, size) in enumerate(zip(begins[1:], source.sizes, strict=True)):
            zipped.add(f"data/{key}", size, pieces(descriptor, begin, size))
        zipped.add("version", len(TORCH_FORMAT), [TORCH_FORMAT])
        zipped.add(STAMP_RECORD, len(stamp), [stamp])


def _token_of(path: Path) -> str | None:
    stamp = read_stamp(path)
    return None if stamp is None else stamp.token


def run_snapshot(job: SnapshotJob, blobs: Path, folder: Path) -> JobResult:
    """Write one snapshot, durably, or say why that cannot be.

    Args:
        job: from the frame, decoded and so checked.
        blobs: blob folder of the job's stream; its parent is the stream's spool folder.
        folder: where the files go.

    Raises:
        OSError: the disk did not take it (full, broken); nothing has changed, try again later.
    """
    names, outcome = _names_left(job, folder)
    if not names:
        fsync_folder(folder)  # a rename may be younger than the last sync
        return JobResult(outcome)
    try:
        with replacing(folder / names[-1], temp=fresh_temp(folder, job.token)) as temp:
            if isinstance(job.source, ArenaSource):
                size = job.source.skeleton_bytes
                with opened_slot(job.source, blobs, size) as (descriptor, begin), created(temp) as file:
                    file.writelines(pieces(descriptor, begin, size))
            else:
                take_blob(job.source, job.token, blobs, temp, _snapshot_token)
            for name in names[:-1]:
                _put_second(temp, folder / name)
    except SourceError as error:
        return error.result
    return JobResult(Outcome.WRITTEN)


def _names_left(job: SnapshotJob, folder: Path) -> tuple[list[str], Outcome]:
    left, outcome = [], Outcome.ALREADY
    for name in job.names:
        token, order = saved_order(folder / name)
        if order > job.order:
            outcome = Outcome.SUPERSEDED
        elif token != job.token:
            left.append(name)
    return left, outcome


def _snapshot_token(path: Path) -> str | None:
    return saved_order(path)[0]


def _put_second(temp: Path, final: Path) -> None:
    """Give `final` the content of `temp`, which stays: a link where the file system has them."""
    with replacing(final, temp=f"{temp.name}-2", durable=False) as second:
        try:
            os.link(temp, second)
        except OSError:
            with open(temp, "rb") as source, created(second) as file:
                shutil.copyfileobj(source, file, 1 << 20)


def fresh_temp(folder: Path, token: str) -> str:
    """A temp name for a job that no other process uses; what dead processes left of the job is removed.

    The name bears the process: an agent that ends may still be at a job that the next one begins again.

    Raises:
        OSError: the folder cannot be listed.
    """
    stem = f"{TEMP_PREFIX}{token}"
    me = f"{os.getpid()}-{process_start(os.getpid()) or 0}"
    for name in os.listdir(folder):
        if not name.startswith(stem):
            continue
        rest = name.removeprefix(stem)
        owner = _OWN_TEMP.match(rest)
        if rest in {"", "-2"} or (
            owner is not None and (owner["process"] == me or not _lives(owner["process"]))
        ):
            with suppress(FileNotFoundError):
                os.unlink(folder / name)
    return f"{stem}-{me}"


def _lives(process: str) -> bool:
    pid, _, start = process.partition("-")
    return process_start(int(pid)) == int(start)


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """A new file for writing; on leaving without an exception it was fsynced.

    Raises:
        OSError: it exists, or the disk does not take it.
    """
    with open(os.open(path, NEW_FLAGS, file_mode(path.parent)), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def opened_slot(source: SlotRef, blobs: Path, nbytes: int) -> Iterator[tuple[int, int]]:
    """A job's slot for reading by `pieces`: the arena's descriptor, and the offset of the slot's bytes.

    Args:
        source: names it.
        blobs: blob folder of the job's stream; its parent is the stream's spool folder.
        nbytes: what the job has in it.

    Raises:
        SourceError: it is not this job's, or was not until the end.
        OSError: that cannot be found out now.
    """
    with closing_fd(_open_arena(source, blobs, os.O_RDONLY)) as descriptor:
        slot_bytes = _check_slot(descriptor, source)
        if nbytes > slot_bytes:
            raise SourceError(Outcome.REFUSED, "the job is larger than its slot")
        yield descriptor, ARENA_DATA_OFFSET + source.slot * slot_bytes
        _check_slot(descriptor, source)


def pieces(descriptor: int, begin: int, size: int) -> Iterator[bytes]:
    """`size` bytes from `begin`, at most PIECE_BYTES at a time."""
    end = begin + size
    while begin < end:
        piece = os.pread(descriptor, min(PIECE_BYTES, end - begin), begin)
        if not piece:
            raise SourceError(Outcome.LOST, "its bytes were cut short")
        begin += len(piece)
        yield piece


def take_blob(
    source: BlobSource, token: str, blobs: Path, temp: Path, token_of: Callable[[Path], str | None]
) -> None:
    """Bring a blob beside its final place: by a second link on the same file system, else by copying.

    Args:
        source: names it.
        token: of the job.
        blobs: the folder it is in.
        temp: the name it gets; durable afterwards.
        token_of: reads the token in a file; None when that is not a whole file.

    Raises:
        SourceError: it is gone, not whole, or not this user's.
        OSError: the disk does not take it.
    """
    path = blobs / source.blob
    with opened_blob(source, blobs) as descriptor:
        if token_of(path) != token:
            raise SourceError(Outcome.LOST, f"the blob {source.blob} is not whole")
        try:
            give_mode(descriptor, file_mode(temp.parent))
            os.link(path, temp, follow_symlinks=False)
            os.fsync(descriptor)
        except OSError:
            with suppress(FileNotFoundError):
                temp.unlink()
            with created(temp) as file:
                file.writelines(pieces(descriptor, 0, source.size))


@contextmanager
def opened_blob(source: BlobSource, blobs: Path) -> Iterator[int]:
    """A blob's descriptor, for reading by `pieces`.

    Raises:
        SourceError: it is gone, not of its size, or not this user's.
        OSError: that cannot be found out now.
    """
    with closing_fd(_open_source(blobs / source.blob, "blob")) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise SourceError(Outcome.REFUSED, f"the blob {source.blob} is not a file of this user")
        if found.st_size != source.size:
            raise SourceError(Outcome.LOST, f"the blob {source.blob} is not whole")
        yield descriptor


def _open_source(path: str | os.PathLike[str], what: str, mode: int = os.O_RDONLY) -> int:
    try:
        return os.open(path, mode | READ_FLAGS)  # which add nothing to the mode
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        raise SourceError(Outcome.LOST, f"its {what} is gone: {error.strerror}") from error


def release(job: CheckpointJob | SnapshotJob, blobs: Path) -> None:
    """Give a job's slot back or remove its blob. Call it when the job has run, again if unsure."""
    source = job.source
    if isinstance(source, BlobSource):
        with suppress(OSError):
            (blobs / source.blob).unlink()
    else:
        free_slot(source, blobs)


def free_slot(source: SlotRef, blobs: Path) -> None:
    """Give a slot back to its client, if it still holds this job's bytes."""
    try:
        descriptor = _open_arena(source, blobs, os.O_RDWR)
    except (SourceError, OSError):
        return
    with closing_fd(descriptor), suppress(SourceError):
        _check_slot(descriptor, source)
        header = SLOT_HEADER.pack(SLOT_FREE, source.number)
        os.pwrite(descriptor, header, slot_header_offset(source.slot))


def sweep_arenas(spool: Path, live_streams: Callable[[Path], Iterable[str]]) -> list[str]:
    """Remove shared memory that nobody will read again.

    An arena goes when no living process holds its lock and either its stream belongs to `spool`
    and is not live, or its stream's folder is gone (of an agent that has ended).

    Args:
        spool: this agent's spool folder.
        live_streams: gives the names of streams that have, or may still get, checkpoint jobs to do. It is
            asked after the arenas were listed: a stream is there before its first arena, so that one which
            began, and was killed, while this process was suspended keeps what it saved.

    Returns:
        Names of the files that were removed.
    """
    own = spool_key(spool)
    removed = []
    try:
        entries = os.listdir(ARENA_FOLDER)
    except OSError:
        return []
    live = {stream_key(stream) for stream in live_streams(spool)}
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
        with closing_fd(os.open(os.path.join(ARENA_FOLDER, entry), READ_FLAGS)) as descriptor:
            if os.fstat(descriptor).st_uid != os.geteuid():
                return False
            if not try_lock(descriptor, shared=True):  # shared: two sweepers do not see each other
                return False  # a client lives
            if own:
                return True
            header = os.pread(descriptor, ARENA_HEADER.size, 0)
            magic, _, _, _, length = ARENA_HEADER.unpack(header)
            folder = os.pread(descriptor, min(length, ARENA_OWNER_MAX), ARENA_OWNER_OFFSET)
            return bool(magic == ARENA_MAGIC and folder and not os.path.lexists(folder))
    except (OSError, ValueError, OverflowError, struct.error):
        return False  # the header is not written yet, or never will be


def _open_arena(source: SlotRef, blobs: Path, mode: int) -> int:
    """Open the arena of a job after checking that it is this user's and this stream's."""
    name = ArenaName.parse(source.arena)
    stream = blobs.parent
    expected = (os.geteuid(), spool_key(stream.parent), stream_key(stream.name))
    if name is None or (name.uid, name.spool_key, name.stream_key) != expected:
        raise SourceError(Outcome.REFUSED, f"{source.arena!r} is not an arena of this stream")
    descriptor = _open_source(os.path.join(ARENA_FOLDER, source.arena), "shared memory", mode)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise SourceError(Outcome.REFUSED, f"{source.arena} is not a private file of this user")
    return descriptor


def _check_slot(descriptor: int, source: SlotRef) -> int:
    """Bytes per slot, after checking that the slot still holds this very job."""
    header = os.pread(descriptor, ARENA_HEADER.size, 0)
    state = os.pread(descriptor, SLOT_HEADER.size, slot_header_offset(source.slot))
    if len(header) < ARENA_HEADER.size or len(state) < SLOT_HEADER.size:
        raise SourceError(Outcome.LOST, "the shared memory was cut short")
    magic, version, slots, slot_bytes, _ = ARENA_HEADER.unpack(header)
    if magic != ARENA_MAGIC or version != ARENA_VERSION or not source.slot < slots <= MAX_SLOTS:
        raise SourceError(Outcome.REFUSED, "this is not an arena of a version that this release reads")
    if SLOT_HEADER.unpack(state) != (SLOT_BUSY, source.number):
        raise SourceError(Outcome.LOST, f"its slot holds other bytes by now: job {source.number} is lost")
    return int(slot_bytes)
