"""Which version of a local file a job sends: the planned one, whose size and time the ledger has noted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rla_agent.outputs.output import ends_of
from rla_agent.replicate.backend.target import Twin
from rla_agent.replicate.ledger.rows import Due
from rla_agent.replicate.worker.plan import Append, Local, Permit, Record, Whole

if TYPE_CHECKING:
    from rla_agent.replicate.worker.source import Source

LENIENT_TRIES: Final = 2  # then a file that only grew meanwhile may go as it was


@dataclass(frozen=True, slots=True)
class Job:
    """One file to send. `temp`: name to use; `start`: bytes that it holds already of this version.

    `twin`: a file on the master that has the same content and may be linked. `local`: the version that
    was planned; the ledger has noted its size and time, so no other one may go (None: whatever is there).
    """

    due: Due
    action: Whole | Append | Permit
    temp: bytes
    start: int = 0
    twin: Twin | None = None
    local: Local | None = None


def as_planned(job: Job, source: Source) -> bool:
    """Whether the file is the planned version, or that one and what was added to it since.

    Else the master would get what nobody has noted, or, in a temp file that holds a part already, a mixture.
    """
    assert isinstance(job.action, Whole)
    if job.local is None or source.local == job.local:
        return True
    lenient = job.action.grows or (job.due.tries >= LENIENT_TRIES and job.start == 0)
    return lenient and source.local.ino == job.local.ino and source.local.size >= job.local.size


def size_of(job: Job, source: Source) -> int:
    """How many bytes go."""
    assert isinstance(job.action, Whole)
    planned = job.action.grows or job.local is not None
    size = job.action.size if planned else source.local.size
    return source.whole_records(size, ends_of(job.due.key.name)) if job.action.cut else size


def same_content(source: Source, record: Record | None, size: int) -> bool:
    """Whether the first `size` bytes are what the master got."""
    if record is None or record.acked != size:
        return False
    source.skip_to(size)
    made = source.record(0, size, 0)
    return made.crc == record.crc and record.sha256 in {None, made.sha256}


def read_again(source: Source, size: int) -> bytes:
    """The bytes once more, when the checksums have them already (or not all of them)."""
    source.skip_to(size)
    return source.read(0, size)


def unchanged(job: Job, source: Source) -> bool:
    """Whether the path still leads to the version that was opened; asked just before the rename."""
    assert isinstance(job.action, Whole)
    grows = job.action.grows or job.due.tries >= LENIENT_TRIES
    return source.unchanged(may_grow=grows)
