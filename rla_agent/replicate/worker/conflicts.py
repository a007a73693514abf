"""Resolution of conflicts with foreign files on the master.

The file under the final name must be the one that we left there (the ledger's record), or one that our own
attempts with unknown outcome may have left (`attempts`). Otherwise it is compared: equal content is adopted
without sending, a beginning of our content is replaced or continued. Any other file is preserved under
another name beside ours (`kept_name`).
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Final

from rla_agent.replicate.backend.errors import DeniedError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.ledger_rows import Due
from rla_agent.replicate.worker.file_decision import Append, SetMode
from rla_agent.replicate.worker.send_job import SendJob, Sent
from rla_agent.replicate.worker.send_modes import set_mode_of
from rla_agent.replicate.worker.source_file import SourceFile

MAX_KEPT: Final = 3  # copies moved aside; after so many two writers must be at work


def resolve_conflict(
    session: TargetSession, root: int, job: SendJob, found: RemoteStat
) -> tuple[RemoteStat | None, bytes] | Sent:
    """Resolve the conflict of a file with the one under its name.

    Args:
        session: at the master.
        root: descriptor of the data root.
        job: to be sent.
        found: the state of its name there.

    Returns:
        The state to expect there now, with the name to which a foreign file was moved aside; or the job's
        result where nothing is to be sent.

    Raises:
        DeniedError: another writer is at work there.
    """
    due = job.due
    assert not isinstance(job.action, SetMode)
    size = job.action.upto if isinstance(job.action, Append) else job.action.size
    ours = _ours(found, due)
    if ours and found.size != size:
        return found, b""
    if found.kind == "file" and found.size <= size:
        grown = isinstance(job.action, Append) or (job.action.grows and found.size > 0)
        has_all = found.size == size or grown  # the rest is appended
        same = _same_beginning(session, root, job, found)
        if same is not None:
            return same if has_all else (found, b"")
    if ours:
        return found, b""
    if due.kept >= MAX_KEPT:
        raise DeniedError(
            "send",
            due.path,
            "somebody else keeps changing this file on the master",
            "end the other writer (another node with the same item?), then: rla-agent replicate retry",
        )
    kept = kept_name(due.path, found, due.kept)
    session.rename(due.path, kept)
    return None, kept


def _same_beginning(session: TargetSession, root: int, job: SendJob, found: RemoteStat) -> Sent | None:
    """The row for a master's file that is the beginning of ours; None where it is not.

    The row is of the compared version: one that is written meanwhile counts as changed.
    """
    assert not isinstance(job.action, SetMode)
    began, path = time.monotonic(), job.due.path
    with closing(SourceFile(root, path)) as source:
        at = 0
        while at < found.size:
            theirs = session.read(path, at, min(1 << 20, found.size - at))
            if not theirs or theirs != source.read(at, len(theirs)):
                return None
            at += len(theirs)
        set_mode_of(session, path, source, None)
        record = source.record(job.action.generation, found.size, found.mtime_s)
        return Sent(job, record, read_s=time.monotonic() - began)


def kept_name(path: bytes, found: RemoteStat, count: int) -> bytes:
    """Name beside `path` for the foreign file under it."""
    folder, slash, name = path.rpartition(b"/")
    return folder + slash + name[:200] + b".kept-%d-%d" % (found.mtime_s, count)


def _ours(found: RemoteStat, due: Due) -> bool:
    """Whether one of our own attempts may have left `found`.

    An append leaves more than was there: a file of the old size and another time was written by somebody.
    """
    if found.kind != "file":
        return False
    start = due.record.acked if due.record is not None else 0
    return any(
        start < found.size <= attempt.size
        if attempt.mtime_s is None
        else (found.size, found.mtime_s) == (attempt.size, attempt.mtime_s)
        for attempt in due.attempts
    )
