"""Planned version of a file against its source."""

from __future__ import annotations

import os
from typing import Final

from rla_agent.outputs.formats import Ends, ends_of
from rla_agent.replicate.backend.errors import SourceChangedError
from rla_agent.replicate.file_state import SentRecord
from rla_agent.replicate.worker.file_decision import Append, ReplaceFile
from rla_agent.replicate.worker.pieces import pieces
from rla_agent.replicate.worker.send_job import NotYetError, SendJob
from rla_agent.replicate.worker.source_file import READ_BYTES, SourceFile

APPEND_BYTES: Final = 8 << 20  # of one job; the rest is sent in the next one
LENIENT_TRIES: Final = 2  # a file that only grew meanwhile may be sent as it was


def planned_size(job: SendJob, source: SourceFile) -> int:
    """Number of bytes to send of the planned version, which may have grown since.

    Another version would differ from the ledger or, in a temp file that has a part already, be a mixture.

    Raises:
        SourceChangedError: the file is another version.
    """
    action, local = job.action, job.local
    assert isinstance(action, ReplaceFile)
    if local is not None and source.local != local:
        lenient = action.grows or (job.due.tries >= LENIENT_TRIES and job.start == 0)
        if not lenient or source.local.ino != local.ino or source.local.size < local.size:
            raise SourceChangedError(job.due.path)
    size = action.size if action.grows or local is not None else source.local.size
    return _whole_records(source, size, ends_of(job.due.key.name)) if action.cut else size


def append_parts(job: SendJob, action: Append, source: SourceFile, limit: int) -> list[bytes]:
    """Complete records, in pieces of at most `limit` bytes.

    Raises:
        NotYetError: there is no complete one.
    """
    upto = min(action.upto, action.offset + APPEND_BYTES)
    data = source.read(action.offset, upto - action.offset)
    ends = ends_of(job.due.key.name)
    cut = action.cut or upto < action.upto
    parts = pieces(data, ends, limit, cut=cut)
    if not parts and upto < action.upto:
        parts = pieces(data, ends, limit, cut=False)
    if not parts:
        raise NotYetError("append to", job.due.path, "no whole record yet")
    return parts


def _whole_records(source: SourceFile, size: int, ends_in: Ends) -> int:
    """Number of a file's first `size` bytes that are complete records."""
    done = 0
    rest = b""
    while done + len(rest) < size:
        count = min(READ_BYTES, size - done - len(rest))
        more = os.pread(source.descriptor, count, done + len(rest))
        if not more:
            break
        rest += more
        ends = ends_in(rest)
        if ends:
            done += ends[-1]
            rest = rest[ends[-1] :]
    return done


def same_content(job: SendJob, source: SourceFile, size: int) -> SentRecord | None:
    """The row for a file that is to be compared, where its first `size` bytes are those on the master."""
    record = job.due.record
    assert isinstance(job.action, ReplaceFile)
    if not job.action.compare or record is None or record.acked != size:
        return None
    source.skip_to(size)
    made = source.record(job.action.generation, size, record.remote_mtime_s)
    same = made.crc == record.crc if record.sha256 is None else made.sha256 == record.sha256
    return made if same else None  # for files of another machine only SHA-256 is known


def begins_as_sent(source: SourceFile, record: SentRecord, *, owned: bool) -> bool:
    """Whether a file begins with the sent bytes; of an owned one only the edges are read."""
    if source.edges(record.acked) != (record.head_crc, record.tail_crc):
        return False
    return owned or source.crc_of(record.acked) == record.crc


def unchanged(job: SendJob, source: SourceFile) -> bool:
    """Whether the path still leads to the opened version; checked just before the rename."""
    assert isinstance(job.action, ReplaceFile)
    grows = job.action.grows or job.due.tries >= LENIENT_TRIES
    return source.unchanged(may_grow=grows)


def mtime_s(job: SendJob, source: SourceFile) -> int:
    """Time of the version that is sent, in whole seconds."""
    return (job.local or source.local).mtime_ns // 10**9


def mode_of(source: SourceFile) -> int:
    """Permission bits that the master is to give the file."""
    return 0o600 if source.local.mode is None else source.local.mode
