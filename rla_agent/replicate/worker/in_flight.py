"""Files on their way to a database's master."""

from __future__ import annotations

from dataclasses import dataclass, field

from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.worker.send_job import SendJob


@dataclass(frozen=True, slots=True)
class InFlight:
    """Files that are being sent, or are about to be.

    Attributes:
        jobs: that a sender has.
        again: files that have changed since their job was given.
        ready: files that were put in place, and need not rest first.
        left_behind: appends that were due and found no room in their batch.
    """

    jobs: dict[Key, SendJob] = field(default_factory=dict)
    again: set[Key] = field(default_factory=set)
    ready: set[Key] = field(default_factory=set)
    left_behind: set[Key] = field(default_factory=set)

    def settle(self, key: Key) -> None:
        """Forget a file of which nothing is to be sent."""
        self.ready.discard(key)
        self.left_behind.discard(key)

    def land(self, job: SendJob) -> None:
        """Take a job back from a sender."""
        self.jobs.pop(job.due.key, None)
        self.ready.discard(job.due.key)
