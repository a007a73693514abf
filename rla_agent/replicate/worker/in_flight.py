"""Files on their way to a database's master."""

from __future__ import annotations

from dataclasses import dataclass, field

from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.worker.send_job import SendJob


@dataclass(frozen=True, slots=True)
class InFlight:
    """What is being sent, or waits for it.

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
        """There is nothing to send of a file: forget how it was to go."""
        self.ready.discard(key)
        self.left_behind.discard(key)

    def land(self, job: SendJob) -> None:
        """A sender has come back with a job."""
        self.jobs.pop(job.due.key, None)
        self.ready.discard(job.due.key)
