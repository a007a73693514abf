"""Snapshots of a training: from a job to a durable `itr_N.pkl` or `params.pkl`.

`run_snapshot` may be killed anywhere and run again; each step is safe to repeat:

1. A name whose file carries this job's token is done; one whose file is of a later save stays.
2. The bytes go to a temp file named after the job (a replay starts it afresh), then fsync.
3. Each name left gets the file by rename, the last by the temp file itself, those before by a
   second link; then fsync of the folder. From here on the snapshot is durable.
4. `checkpoint.release`: the slot becomes FREE, or the blob is removed.

Slots and blobs are read by the rules of checkpoint.py. Nothing here unpickles.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from rla_agent.sinks.checkpoint import (
    CheckpointResult,
    Outcome,
    _check_slot,
    _copy,
    _open_arena,
    _pieces,
    _SourceError,
)
from rla_client.checkpoint_job import (
    ARENA_DATA_OFFSET,
    ArenaSource,
    BlobSource,
)
from rla_client.snapshot_job import SnapshotJob, saved_order
from rla_client.storage import TEMP_PREFIX, fsync_folder

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def run_snapshot(job: SnapshotJob, blobs: Path, folder: Path) -> CheckpointResult:
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
        return CheckpointResult(outcome)
    temp = folder / f"{TEMP_PREFIX}{job.token}"
    for left in (temp, _second(temp)):
        with suppress(FileNotFoundError):
            left.unlink()
    try:
        if isinstance(job.source, ArenaSource):
            _write_from_slot(job.source, blobs, temp)
        else:
            _take_blob(job, job.source, blobs, temp)
        size = temp.stat().st_size
        for name in names[:-1]:
            _put_second(temp, folder / name)
        os.replace(temp, folder / names[-1])
    except _SourceError as error:
        return error.result
    finally:
        with suppress(OSError):
            temp.unlink()
    fsync_folder(folder)
    return CheckpointResult(Outcome.WRITTEN, size=size)


def _names_left(job: SnapshotJob, folder: Path) -> tuple[list[str], Outcome]:
    left, outcome = [], Outcome.ALREADY
    for name in job.names:
        token, order = saved_order(folder / name)
        if order > job.order:
            outcome = Outcome.SUPERSEDED
        elif token != job.token:
            left.append(name)
    return left, outcome


def _write_from_slot(source: ArenaSource, blobs: Path, temp: Path) -> None:
    descriptor = _open_arena(source, blobs, os.O_RDONLY)
    try:
        slot_bytes = _check_slot(descriptor, source)
        if source.skeleton_bytes > slot_bytes:
            raise _SourceError(Outcome.REFUSED, "the job is larger than its slot")
        begin = ARENA_DATA_OFFSET + source.slot * slot_bytes
        with open(os.open(temp, _CREATE_FLAGS, 0o644), "wb") as file:
            file.writelines(_pieces(descriptor, begin, source.skeleton_bytes))
            _check_slot(descriptor, source)
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.close(descriptor)


def _take_blob(job: SnapshotJob, source: BlobSource, blobs: Path, temp: Path) -> None:
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
        if found.st_size != source.size or saved_order(path)[0] != job.token:
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


def _second(temp: Path) -> Path:
    return temp.with_name(f"{temp.name}-2")


def _put_second(temp: Path, final: Path) -> None:
    """Give `final` the content of `temp`, which stays: a link where the file system has them."""
    second = _second(temp)
    try:
        os.link(temp, second)
    except OSError:
        with open(temp, "rb") as source, open(os.open(second, _CREATE_FLAGS, 0o644), "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
    os.replace(second, final)
