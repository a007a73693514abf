"""Checkpoints: from a job to a durable `.pt` file.

`run_checkpoint` may be killed anywhere and run again; each step is safe to repeat:

1. If the final file carries this job's stamp, the work is done; if a newer save of the same run has
   taken its name, or retention has removed it since, there is nothing to do.
2. The bytes go to a temp file named after the job and this process (a replay starts it afresh), then fsync.
3. Rename, fsync of the folder. From here on the checkpoint is durable.
4. `job_source.release`: the slot becomes FREE, or the blob is removed. Then `retain` may delete older ones.

Nothing here unpickles; a skeleton is copied as bytes. Jobs of one folder must not run in parallel.

Snapshots of a training: from a job to a durable `itr_N.pkl` or `params.pkl`.

`run_snapshot` may be killed anywhere and run again; each step is safe to repeat:

1. A name whose file carries this job's token is done; one whose file is of a later save stays.
2. The bytes go to a temp file named after the job and this process (a replay starts it afresh), then fsync.
3. Each name left gets the file by rename, the last by the temp file itself, those before by a
   second link; then fsync of the folder. From here on the snapshot is durable.
4. `job_source.release`: the slot becomes FREE, or the blob is removed.

Nothing here unpickles.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO

from rla_agent.jobs.source import (
    JobResult,
    Outcome,
    SourceError,
    created,
    fresh_temp,
    opened_blob,
    opened_slot,
    pieces,
    take_blob,
)
from rla_client.contract.checkpoints import TORCH_FORMAT, TorchZip, list_saved, read_stamp, remove_superseded
from rla_client.contract.files import fsync_folder, replacing
from rla_client.contract.jobs import (
    STAMP_RECORD,
    ArenaSource,
    CheckpointJob,
    RawBlobSource,
    SnapshotJob,
    saved_order,
    storage_offsets,
)


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
        return JobResult(Outcome.ALREADY, size=final.stat().st_size)
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
            size = temp.stat().st_size
    except SourceError as error:
        return _explain_loss(job, final, error.result)
    return JobResult(Outcome.WRITTEN, size=size)


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
                _write_from_slot(job.source, blobs, temp)
            else:
                take_blob(job.source, job.token, blobs, temp, _snapshot_token)
            size = temp.stat().st_size
            for name in names[:-1]:
                _put_second(temp, folder / name)
    except SourceError as error:
        return error.result
    return JobResult(Outcome.WRITTEN, size=size)


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
    size = source.skeleton_bytes
    with opened_slot(source, blobs, size) as (descriptor, begin), created(temp) as file:
        file.writelines(pieces(descriptor, begin, size))


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
