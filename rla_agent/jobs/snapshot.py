"""Snapshots of a training: from a job to a durable `itr_N.pkl` or `params.pkl`.

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

from rla_agent.jobs.source import (
    JobResult,
    Outcome,
    SourceError,
    created,
    fresh_temp,
    opened_slot,
    pieces,
    take_blob,
)
from rla_client.contract.checkpoint_job import ArenaSource
from rla_client.contract.files import fsync_folder, replacing
from rla_client.contract.snapshot_job import SnapshotJob, saved_order


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
                take_blob(job.source, job.token, blobs, temp, _token_of)
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


def _token_of(path: Path) -> str | None:
    return saved_order(path)[0]


def _put_second(temp: Path, final: Path) -> None:
    """Give `final` the content of `temp`, which stays: a link where the file system has them."""
    with replacing(final, temp=f"{temp.name}-2", durable=False) as second:
        try:
            os.link(temp, second)
        except OSError:
            with open(temp, "rb") as source, created(second) as file:
                shutil.copyfileobj(source, file, 1 << 20)
