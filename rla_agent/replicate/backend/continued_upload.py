"""Upload that continues an earlier attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rla_agent.replicate.backend.errors import MissingError
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.backend.upload import SYNC_BYTES, Upload

COMPARED_BYTES: Final = 1 << 20  # compared bytes before the end of an earlier attempt's temp file


def continued(job: Upload, session: TargetSession) -> Upload:
    """The same job, starting behind the part of the temp file that is intact.

    A server that lost power has unsynced bytes in part or not at all. So these are compared, as far as
    reading them pays, and the rest is sent again; on a server that cannot sync only the end is compared,
    which was written last.
    """
    if not job.start:
        return job
    start = min(job.start, job.sure + SYNC_BYTES) if session.syncs else job.start
    at = job.sure if session.syncs else max(job.sure, start - COMPARED_BYTES)
    try:
        found = session.stat(job.temp)
        there = session.read(job.temp, at, start - at)
    except MissingError:
        found = None
    if found is not None and found.size >= start and there == job.read(at, start - at):
        return replace(job, start=start)
    if found is not None and job.sure <= found.size:
        return replace(job, start=job.sure)
    return replace(job, start=0)
