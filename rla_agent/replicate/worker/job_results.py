"""Results of jobs in the ledger."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Final

from rla_agent.replicate.backend.errors import (
    DeniedError,
    FullError,
    MissingError,
    SourceChangedError,
    TargetError,
    UnreadableError,
)
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import PARKED, Key
from rla_agent.replicate.tombstones import BuriedError, MovedError
from rla_agent.replicate.worker import file_decision, pacing, retry_backoff
from rla_agent.replicate.worker.changed_files import ChangedFiles
from rla_agent.replicate.worker.confirm import Confirmations
from rla_agent.replicate.worker.due_jobs import DueJobs
from rla_agent.replicate.worker.file_decision import Append, SetMode
from rla_agent.replicate.worker.in_flight import InFlight
from rla_agent.replicate.worker.leftovers import Leftovers
from rla_agent.replicate.worker.read_faults import WAYS_OUT, ScanError, unread
from rla_agent.replicate.worker.send_job import Failed, NotYetError, SendJob, Sent
from rla_client.contract.layout import CODE

SHORT_TRIES: Final = 8  # tries that count where this process is short of resources: that alone parks no file


@dataclass
class Counters:
    """Counters for status since this worker started."""

    written_bytes: int = 0
    sent_files: int = 0
    sent_bytes: int = 0
    kept: int = 0
    last_success: float = 0.0


@dataclass
class JobResults:
    """Records each job's result, and whether its file is sent again.

    Attributes:
        number: of the database in the ledger.
        jobs: makes those that follow.
    """

    number: int
    ledger: Ledger
    changes: ChangedFiles
    confirmations: Confirmations
    flight: InFlight
    leftovers: Leftovers
    jobs: DueJobs
    counters: Counters

    def sent(self, result: Sent, now: float, *, can_sync: bool) -> None:
        """Record a file that was sent; `can_sync`: the session syncs."""
        job, key = result.job, result.job.due.key
        self.ledger.sent(key, result.record, time.time())
        if result.synced is not None:
            acked = result.record.acked
            self.confirmations.sent(key, job.due.path, acked, now, synced=result.synced, can_sync=can_sync)
        if job.due.kind == CODE and result.record.sha256 is not None:
            self.ledger.add_content(self.number, result.record.sha256, key)
        if job.uses_temp:
            self.ledger.drop_temps(self.number, [job.temp])
        if not job.due.item_made:
            self.ledger.made_item(self.number, job.due.item)
        self.leftovers.sent(key)
        self.jobs.pace(key, now + pacing.pace_s(result.read_s))
        self.counters.sent_files += 1
        self.counters.sent_bytes += job.size
        self.counters.last_success = time.time()
        if result.kept:
            self.counters.kept += 1
            self.ledger.set_meta(f"kept:{result.kept.decode('utf-8', 'backslashreplace')}", time.time())
        wanted = result.record.acked
        if not isinstance(job.action, SetMode):
            wanted = job.action.upto if isinstance(job.action, Append) else job.action.size
        if key in self.flight.again or result.record.acked < wanted:
            self.flight.again.discard(key)
            prio = file_decision.priority(job.due.kind, 0)
            self.ledger.mark(key, self.number, prio, max(0, wanted - result.record.acked), now)
            self.ledger.retry_at(key, now + pacing.PACE_S, failed=False)

    def failed(self, result: Failed, now: float) -> None:
        """Record a file that was not sent, with its retry if there is one."""
        job, error, key = result.job, result.error, result.job.due.key
        self.flight.again.discard(key)
        if job.uses_temp:
            self.leftovers.orphans.append(job.temp)
        if isinstance(error, BuriedError):
            self.ledger.bury(self.number, error.subject)
        elif isinstance(error, MovedError):
            self.ledger.park_item(self.number, job.due.item, error.why, error.hint)
        elif isinstance(error, DeniedError):
            self.ledger.set_state(key, PARKED, str(error), error.hint)
        elif isinstance(error, NotYetError):
            self.ledger.retry_at(key, now + file_decision.REST_S, failed=False)
        elif isinstance(error, MissingError):
            self.ledger.forget_copy(key)
            self.ledger.retry_at(key, now, failed=True)
        elif isinstance(error, FullError):
            self.ledger.retry_at(key, now, failed=False, reason=str(error))
        else:
            self._try_later(job, error, now)

    def _try_later(self, job: SendJob, error: Exception, now: float) -> None:
        key, tries = job.due.key, job.due.tries
        if isinstance(error, FileNotFoundError):
            self.changes.vanished(key, job.due.path, sent=job.due.record is not None, state=1)
            return
        if isinstance(error, UnreadableError):
            error = error.why
        if isinstance(error, OSError):
            self._unreadable(key, tries, error, now)
            return
        if isinstance(error, SourceChangedError):
            self.ledger.retry_at(key, now + file_decision.REST_S, failed=True)
            return
        hint = error.hint if isinstance(error, TargetError) else ""
        if tries >= file_decision.MAX_TRIES:
            self.ledger.set_state(
                key, PARKED, str(error), hint or "look at the file, then: rla-agent replicate retry"
            )
            return
        wait = retry_backoff.backoff_s(tries + 1, random.random())  # noqa: S311 - jitter
        self.ledger.retry_at(key, now + wait, failed=True, reason=str(error))

    def _unreadable(self, key: Key, tries: int, error: OSError, now: float) -> None:
        """Record a local file that gave an error: some errors pass, others need a person."""
        wait = retry_backoff.backoff_s(tries + 1, random.random())  # noqa: S311 - jitter
        try:
            why = unread(error)
        except ScanError as short:
            self.ledger.retry_at(key, now + max(1.0, wait), failed=tries < SHORT_TRIES, reason=str(short))
            return
        if error.errno in WAYS_OUT or tries >= file_decision.MAX_TRIES:
            self.ledger.set_state(key, PARKED, why.reason, f"{why.fix}; then: rla-agent replicate retry")
        else:
            self.ledger.retry_at(key, now + wait, failed=True, reason=why.reason)
