"""Snapshot jobs, which make durable snapshot files.

`run_snapshot` may be killed anywhere and run again. A file with this job's token is done; one of a newer save
stays. The bytes of the slot or blob go to a temp file, then fsync; each remaining name (`itr_N.pkl`,
`params.pkl`) gets the file by rename, the last one by the temp file itself, those before by a second link;
then fsync of the folder. It never unpickles.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rla_agent.jobs.job_source import opened_slot, pieces, take_blob
from rla_agent.jobs.job_temp import created, fresh_temp
from rla_agent.jobs.outcome import JobOutcome, JobResult, SourceError
from rla_client.contract.filesystem.atomic_write import fsync_folder, replacing
from rla_client.contract.job.job_source import ArenaSource
from rla_client.contract.job.snapshot_footer import saved_order
from rla_client.contract.job.snapshot_job import SnapshotJob


def run_snapshot(job: SnapshotJob, blobs: Path, folder: Path) -> JobResult:
    """Write one snapshot durably, or return why that is impossible.

    Args:
        job: from the frame, decoded and checked.
        blobs: blob folder of the job's stream; its parent is the stream's spool folder.
        folder: of the files.

    Raises:
        OSError: the disk refuses it (full, broken); nothing has changed, retry later.
    """
    names, outcome = _names_left(job, folder)
    if not names:
        fsync_folder(folder)  # a rename may be newer than the last sync
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
    return JobResult(JobOutcome.WRITTEN)


def _names_left(job: SnapshotJob, folder: Path) -> tuple[list[str], JobOutcome]:
    left, outcome = [], JobOutcome.ALREADY
    for name in job.names:
        token, order = saved_order(folder / name)
        if order > job.order:
            outcome = JobOutcome.SUPERSEDED
        elif token != job.token:
            left.append(name)
    return left, outcome


def _snapshot_token(path: Path) -> str | None:
    return saved_order(path)[0]


def _put_second(temp: Path, final: Path) -> None:
    """Make `final` a second link to `temp`, or a copy where the file system has no links."""
    with replacing(final, temp=f"{temp.name}-2", durable=False) as second:
        try:
            os.link(temp, second)
        except OSError:
            with open(temp, "rb") as source, created(second) as file:
                shutil.copyfileobj(source, file, 1 << 20)
