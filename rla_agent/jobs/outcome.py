"""Outcomes of jobs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rla_client.contract.errors import RemoteProtocolError, UnsafeNameError
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.process.descriptors import closing_fd

# these say nothing of the file: the job is tried again
SHORTAGES = frozenset((errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class JobOutcome(Enum):
    """What became of a job. Only one that ended as LATER is to be tried again."""

    WRITTEN = "written"
    ALREADY = "already"  # an earlier try had got so far
    KEPT = "kept"  # a file of this name was there and stays
    SUPERSEDED = "superseded"  # newer checkpoints have taken its place
    LOST = "lost"  # its bytes are gone: a reboot, a cleared /dev/shm, a cut before the fsync
    REFUSED = "refused"  # it names something that is not its own
    REMOVED = "removed"  # the item's folder is gone: nothing is made again
    FAILED = "failed"  # it cannot be done
    LATER = "later"  # disk full and the like: its bytes stay


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended; `reason` is for the operator, of one that was not done."""

    outcome: JobOutcome
    reason: str = ""

    @property
    def durable(self) -> bool:
        """True when the file is there, so that older ones may go."""
        return self.outcome in {JobOutcome.WRITTEN, JobOutcome.ALREADY}


class SourceError(Exception):
    """The bytes of a job cannot be had."""

    def __init__(self, outcome: JobOutcome, reason: str) -> None:
        self.result = JobResult(outcome, reason)
        super().__init__(reason)


_FOR_GOOD = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}


def outcome_of(error: OSError) -> JobOutcome:
    """LATER for what may pass (disk full, I/O error, no permission), FAILED for what cannot."""
    return JobOutcome.FAILED if error.errno in _FOR_GOOD else JobOutcome.LATER


def attempt_in(final_dir: Path, work: Callable[[int], JobResult]) -> JobResult:
    """Do a job in a folder that the caller holds, and that is not made again when it is gone.

    No error is raised for what a client, a figure or the disk did.
    """
    try:
        folder = open_root(final_dir)
    except OSError as error:
        return JobResult(JobOutcome.REMOVED, f"{final_dir}: {error.strerror}")
    try:
        with closing_fd(folder):
            return work(folder)
    except (RemoteProtocolError, SourceError, UnsafeNameError) as error:
        return JobResult(JobOutcome.FAILED, str(error))
    except OSError as error:
        return JobResult(outcome_of(error), f"{error.strerror or error}: {error.filename}")
