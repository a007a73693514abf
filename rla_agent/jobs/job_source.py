"""Source bytes of a job.

Shared memory is read by pread, never mapped: a file that somebody truncates gives a short read and not
SIGBUS. A slot is believed only if it is BUSY with the job's number before and after reading. A blob is
believed only if it is of this user, has the size that the job says and carries its token.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rla_agent.jobs.job_temp import created
from rla_agent.jobs.outcome import SHORTAGES, JobOutcome, SourceError
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.filesystem.modes import file_mode, give_mode
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS
from rla_client.contract.job.arena_layout import (
    ARENA_DATA_OFFSET,
    ARENA_FOLDER,
    ARENA_HEADER,
    ARENA_MAGIC,
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
from rla_client.contract.job.job_source import BlobSource
from rla_client.contract.job.snapshot_job import SnapshotJob
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.safe_names import component_problem

PIECE_BYTES = 4 << 20  # read, checksummed and written at a time


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
            raise SourceError(JobOutcome.REFUSED, "the job is larger than its slot")
        yield descriptor, ARENA_DATA_OFFSET + source.slot * slot_bytes
        _check_slot(descriptor, source)


def pieces(descriptor: int, begin: int, size: int) -> Iterator[bytes]:
    """`size` bytes from `begin`, at most PIECE_BYTES at a time."""
    end = begin + size
    while begin < end:
        piece = os.pread(descriptor, min(PIECE_BYTES, end - begin), begin)
        if not piece:
            raise SourceError(JobOutcome.LOST, "its bytes were cut short")
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
            raise SourceError(JobOutcome.LOST, f"the blob {source.blob} is not whole")
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
            raise SourceError(JobOutcome.REFUSED, f"the blob {source.blob} is not a file of this user")
        if found.st_size != source.size:
            raise SourceError(JobOutcome.LOST, f"the blob {source.blob} is not whole")
        yield descriptor


def _open_source(path: str | os.PathLike[str], what: str, mode: int = os.O_RDONLY) -> int:
    try:
        return os.open(path, mode | READ_FLAGS)  # which add nothing to the mode
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        raise SourceError(JobOutcome.LOST, f"its {what} is gone: {error.strerror}") from error


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


def _open_arena(source: SlotRef, blobs: Path, mode: int) -> int:
    """Open the arena of a job after checking that it is this user's and this stream's."""
    name = ArenaName.parse(source.arena)
    stream = blobs.parent
    expected = (os.geteuid(), spool_key(stream.parent), stream_key(stream.name))
    if name is None or (name.uid, name.spool_key, name.stream_key) != expected:
        raise SourceError(JobOutcome.REFUSED, f"{source.arena!r} is not an arena of this stream")
    descriptor = _open_source(os.path.join(ARENA_FOLDER, source.arena), "shared memory", mode)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise SourceError(JobOutcome.REFUSED, f"{source.arena} is not a private file of this user")
    return descriptor


def _check_slot(descriptor: int, source: SlotRef) -> int:
    """Bytes per slot, after checking that the slot still holds this very job."""
    header = os.pread(descriptor, ARENA_HEADER.size, 0)
    state = os.pread(descriptor, SLOT_HEADER.size, slot_header_offset(source.slot))
    if len(header) < ARENA_HEADER.size or len(state) < SLOT_HEADER.size:
        raise SourceError(JobOutcome.LOST, "the shared memory was cut short")
    magic, version, slots, slot_bytes, _ = ARENA_HEADER.unpack(header)
    if magic != ARENA_MAGIC or version != ARENA_VERSION or not source.slot < slots <= MAX_SLOTS:
        raise SourceError(JobOutcome.REFUSED, "this is not an arena of a version that this release reads")
    if SLOT_HEADER.unpack(state) != (SLOT_BUSY, source.number):
        raise SourceError(JobOutcome.LOST, f"its slot holds other bytes by now: job {source.number} is lost")
    return int(slot_bytes)


def blob_name(value: object) -> str:
    """Check a blob's name: one plain path component."""
    if not isinstance(value, str) or component_problem(value) or value.startswith("."):
        raise RemoteProtocolError(f"no name of a blob: {value!r:.100}")
    return value


def open_blob(folder: Path, name: str, max_bytes: int) -> tuple[int, int]:
    """Open a blob of this uid for reading: (descriptor, bytes).

    Raises:
        OSError: it is not there.
        RemoteProtocolError: it is a link, not ours, no plain file, or too large.
    """
    with closing_fd(os.open(folder, FOLDER_FLAGS)) as parent:
        try:
            descriptor = os.open(name, READ_FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RemoteProtocolError(f"blob {name} is a link") from error
            raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > max_bytes:
        os.close(descriptor)
        raise RemoteProtocolError(f"blob {name} is not ours, no plain file, or over {max_bytes} bytes")
    return descriptor, found.st_size
