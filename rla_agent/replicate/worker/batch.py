"""Batch of work for a sender, with its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rla_agent.replicate.backend.errors import TargetError
from rla_agent.replicate.ledger_rows import Drop, Unconfirmed
from rla_agent.replicate.worker.confirm import Checked, Unsynced
from rla_agent.replicate.worker.send_job import FolderMode, Result, SendJob
from rla_agent.replicate.worker.sharded_master import PartFound, PartLook


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Jobs of one database.

    `root`: descriptor of its data root; `remove`: temp names to delete; `fleet`: this machine's status file;
    `modes`: of folders; `drops`: files to delete; `used`: the master has items of this database; `mounts`:
    its root is a folder that may be unmounted; `syncs`: files to sync; `checks`: files to check; `moved`:
    item folders that were missing and may be back; `parts`: saves in the making to check.
    """

    db: int
    root: int
    jobs: tuple[SendJob, ...]
    remove: tuple[bytes, ...] = ()
    fleet: bytes = b""
    modes: tuple[FolderMode, ...] = ()
    drops: tuple[Drop, ...] = ()
    used: bool = False
    mounts: bool = True
    syncs: tuple[Unsynced, ...] = ()
    checks: tuple[Unconfirmed, ...] = ()
    moved: tuple[bytes, ...] = ()
    parts: tuple[PartLook, ...] = ()

    @property
    def works(self) -> bool:
        """Whether there is more to do than to check `moved`, which keeps no session open."""
        return not self.moved or any(
            (self.jobs, self.remove, self.fleet, self.modes, self.drops, self.syncs, self.checks, self.parts)
        )


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Progress of a large file on the master, for the ledger, so that a later attempt continues there.

    `synced`: on its disk.
    """

    db: int
    job: SendJob
    confirmed: int
    synced: int = 0


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """Outcome of a batch. `error`: the link broke; jobs without a result are open.

    `dropped`: those of its drops that are no longer there, or are somebody else's file by now; `synced`,
    `checked`: results of these; `back`: item folders that are there again; `can_sync`: the master can sync;
    `unsound`: files that could not be synced because the master's disk gave an error; `parts`: results for
    its saves in the making.
    """

    sender: int
    batch: SendBatch
    results: tuple[Result, ...]
    removed: tuple[bytes, ...] = ()
    error: TargetError | None = None
    written_bytes: int = 0
    dropped: tuple[Drop, ...] = ()
    synced: tuple[Unsynced, ...] = ()
    checked: tuple[Checked, ...] = ()
    back: tuple[bytes, ...] = ()
    can_sync: bool = False
    unsound: tuple[Unsynced, ...] = ()
    parts: tuple[PartFound, ...] = ()

    def open_jobs(self) -> list[SendJob]:
        """Jobs of a broken batch with unknown outcome."""
        return without_result(self.batch.jobs, self.results)


def without_result(jobs: Sequence[SendJob], results: Sequence[Result]) -> list[SendJob]:
    """Jobs that have no result."""
    answered = {id(result.job.due) for result in results}
    return [job for job in jobs if id(job.due) not in answered]
