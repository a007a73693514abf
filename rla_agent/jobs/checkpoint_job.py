"""Checkpoint jobs, which make durable `.pt` files.

The bytes come from a slot or a blob. `run_checkpoint` may be killed anywhere and run again; each step is safe
to repeat. It never unpickles: a skeleton is copied as bytes. Jobs of one folder must not run in parallel.

1. A final file with this job's stamp is done; one of a newer save of the same run stays, and where
   retention has removed the checkpoint since, there is nothing to do.
2. The bytes go to a temp file named after the job and this process (a replay starts it afresh), then fsync.
3. The temp file takes the name by rename; then fsync of the folder. From here on it is durable.
4. `release`: the slot becomes FREE, or the blob is removed. Then `retain` may delete older checkpoints.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from rla_agent.jobs.job_source import opened_blob, opened_slot, pieces, take_blob
from rla_agent.jobs.job_temp import created, fresh_temp
from rla_agent.jobs.outcome import JobOutcome, JobResult, SourceError
from rla_client.contract.checkpoint.checkpoint_removal import remove_superseded
from rla_client.contract.checkpoint.checkpoint_retention import list_saved
from rla_client.contract.checkpoint.stamp import STAMP_RECORD, read_stamp
from rla_client.contract.checkpoint.torch_zip import TORCH_FORMAT, TorchZip
from rla_client.contract.filesystem.atomic_write import fsync_folder, replacing
from rla_client.contract.job.checkpoint_job import CheckpointJob
from rla_client.contract.job.job_source import ArenaSource, RawBlobSource, storage_offsets

MARKS_FIELD = "marks"  # field of a checkpoint job: where resume truncates the outputs


def run_checkpoint(job: CheckpointJob, blobs: Path, final: Path) -> JobResult:
    """Write one checkpoint durably, or return why that is impossible.

    Args:
        job: from the frame, decoded and checked.
        blobs: blob folder of the job's stream; its parent is the stream's spool folder.
        final: path of the file; its last part is `job.final_name`.

    Raises:
        OSError: the disk refuses it (full, broken); nothing has changed, retry later.
    """
    if not final.parent.is_dir():
        return JobResult(JobOutcome.REMOVED, f"the folder {final.parent} is gone")
    there = read_stamp(final)
    if there is not None and there.token == job.stamp.token:
        fsync_folder(final.parent)  # the rename may be newer than the last sync
        return JobResult(JobOutcome.ALREADY)
    if there is not None and there.run == job.stamp.run and there.order > job.stamp.order:
        return JobResult(JobOutcome.SUPERSEDED, "a later save has its name")
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
    return JobResult(JobOutcome.WRITTEN)


def retain(job: CheckpointJob, folder: Path) -> list[str]:
    """Delete checkpoints that the job's retention no longer keeps; call it once the job's file is durable.

    Returns:
        File names that were removed. Files without a stamp, or of another run, never are.
    """
    return remove_superseded(folder, job.stamp.name, job.stamp.run, job.retention)


def _explain_loss(job: CheckpointJob, final: Path, result: JobResult) -> JobResult:
    """Reason for lost bytes; no loss where the work was done before and retention has removed the file."""
    newer = [
        entry
        for entry in list_saved(final.parent, job.stamp.name)
        if entry.stamp.run == job.stamp.run and entry.stamp.order > job.stamp.order
    ]
    most = job.retention.max_to_keep
    if result.outcome is JobOutcome.LOST and most is not None and len(newer) >= most:
        return JobResult(JobOutcome.SUPERSEDED, "newer ones have taken its place")
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
            raise SourceError(JobOutcome.REFUSED, "the job is not of its blob's size")
        if os.pread(descriptor, len(token), needed) != token:
            raise SourceError(JobOutcome.LOST, f"the blob {source.blob} is not whole")
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
