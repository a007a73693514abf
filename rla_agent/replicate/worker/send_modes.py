"""Permission bits of paths on the master."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rla_agent.replicate.backend.errors import DeniedError, MissingError
from rla_agent.replicate.backend.remote_paths import check_remote
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.file_state import SentRecord
from rla_agent.replicate.worker.send_job import Failed, FolderMode, Result, SendJob, Sent
from rla_agent.replicate.worker.source_file import SourceFile


def set_modes(session: TargetSession, jobs: Sequence[tuple[SendJob, int]]) -> list[Result]:
    """Set the permissions of sent files to those that they have here.

    Raises:
        LinkError: the session is broken.
    """
    problems = session.set_modes([(job.due.path, mode) for job, mode in jobs]) if jobs else []
    results: list[Result] = []
    for (job, _), problem in zip(jobs, problems, strict=True):
        record = job.due.record
        if problem is not None or record is None or job.local is None:
            results.append(Failed(job, problem or MissingError("look at", job.due.path, "never sent")))
        else:
            results.append(Sent(job, replace(record, local=job.local), synced=None))
    return results


def set_mode_of(session: TargetSession, path: bytes, source: SourceFile, record: SentRecord | None) -> None:
    """Set the permissions of a sent file to those that it has here, unless `record` has them.

    Raises:
        TargetError: the master refuses.
    """
    mode = source.local.mode
    if mode is not None and (record is None or record.local.mode != mode):
        (problem,) = session.set_modes([(path, mode)])
        if problem is not None:
            raise problem


def set_folder_modes(session: TargetSession, wanted: Sequence[FolderMode]) -> None:
    """Set the permissions of folders to those here; missing folders get them when they are made.

    Raises:
        LinkError: the session is broken.
    """
    for shared in (False, True):
        modes = [(one.path, one.mode) for one in wanted if one.shared is shared and _fits(one.path)]
        if modes:
            session.set_modes(modes, only_less=shared)


def _fits(path: bytes) -> bool:
    """Whether the master can have a file or folder of this path."""
    try:
        check_remote(path)
    except DeniedError:
        return False
    return True
