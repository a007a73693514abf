"""One database at one target: looks at its files, keeps the ledger, turns what is due into batches.

Belongs to the worker's thread. Times: `now` is the monotonic clock; wall time is asked for only to
see how long a file has rested, for its mtime is wall time.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from dataclasses import replace
from typing import Final

from rla_agent.replicate.backend.target import (
    BlockedError,
    DeniedError,
    FullError,
    HostKeyError,
    LoginError,
    MissingError,
    SourceChangedError,
    TargetError,
    Twin,
    UnreadableError,
)
from rla_agent.replicate.ledger.ledger import CLEAN, PARKED
from rla_agent.replicate.ledger.rows import Attempt, Due, Key, Temp
from rla_agent.replicate.ledger.tombstones import BuriedError, MovedError
from rla_agent.replicate.worker import heartbeat, plan
from rla_agent.replicate.worker.detect import RESUME_BYTES, Looking
from rla_agent.replicate.worker.link import Batch, Confirmed, Outcome, jobs_without_result
from rla_agent.replicate.worker.plan import Append, Health, Local, Nothing, Owned, Permit, Wait, Whole
from rla_agent.replicate.worker.scan import WAYS_OUT, ScanError, unread
from rla_agent.replicate.worker.send import PAGED_BYTES, Failed, NotYetError, Sent
from rla_agent.replicate.worker.source import fingerprint, local_state
from rla_agent.replicate.worker.version import Job
from rla_client.contract.layout import CODE

BATCH_FILES: Final = 64
BATCH_BYTES: Final = 4 << 20  # at most; half of it after each broken one: a bad link gets something done
LEAST_BATCH_BYTES: Final = 32 << 10
DROPS_A_BATCH: Final = 256  # files that max_to_keep dropped
MODES_A_BATCH: Final = 256  # folders
MAX_PACED: Final = 20_000
SHORT_TRIES: Final = 8  # counted where this process is short of something: that alone parks no file
LINKED_BYTES: Final = 16 << 20  # a larger code file is sent anew; this much is held in memory meanwhile


class Database(Looking):
    """A database at a target; see the module."""

    def __post_init__(self) -> None:
        """Open the data root."""
        super().__post_init__()
        self._batch_bytes = BATCH_BYTES
        self._left_behind: set[Key] = set()  # appends that were due and found no room in their batch

    # -- sending ---------------------------------------------------------------------------

    def dispatch(self, now: float) -> None:
        """Give idle senders what is due."""
        if not self.health.may_try(now) or not self._open_root():
            return
        for number in self.link.idle():
            if self.health.tries and self.link.busy:
                return  # one sender tries first
            self._give(number, now)

    def _give(self, number: int, now: float) -> None:
        urgent_only = number == 0 and self.link.connections > 1
        prios = (plan.URGENT, plan.SOON if urgent_only else plan.LAST)
        jobs = self._jobs(self.ledger.due(self.number, now, prios, BATCH_FILES + len(self._flying)), now)
        status = self._fleet_due(now)
        drops = [
            drop
            for drop in self.ledger.dropped(self.number, now, DROPS_A_BATCH + len(self._going))
            if drop.key not in self._going
        ]
        if not jobs and not self._orphans and not status and not self._modes and not drops:
            return
        modes = tuple(self._modes.pop(key) for key in list(self._modes)[:MODES_A_BATCH])
        remove, self._orphans = self._orphans[:1000], self._orphans[1000:]
        self.ledger.add_temps(
            self.number,
            (
                Temp(job.temp, job.due.key, local, job.start)
                for job, local in jobs
                if isinstance(job.action, Whole)
            ),
        )
        for job, local in jobs:
            self._flying[job.due.key] = job
            if not isinstance(job.action, Permit):  # it leaves no bytes
                self.ledger.attempt(job.due, _attempts(job, local))
        self.ledger.commit()
        self._going.update((drop.key, drop) for drop in drops)
        removed = tuple(temp.temp for temp in remove)
        sent = tuple(job for job, _ in jobs)
        batch = Batch(
            self.number,
            self.descriptor,
            sent,
            removed,
            status,
            modes,
            tuple(drops),
            used=self.ledger.made_any(self.number),
        )
        self.link.give(number, batch)

    def _jobs(self, due: list[Due], now: float) -> list[tuple[Job, Local]]:
        jobs: list[tuple[Job, Local]] = []
        total = 0
        for row in due:
            if row.key in self._flying or row.key in self._going:
                continue
            planned = self._job(row, now)
            if planned is None:
                continue
            size = _size(planned[0])
            if jobs and (total + size > self._batch_bytes or len(jobs) >= BATCH_FILES):
                if isinstance(planned[0].action, Append):
                    self._left_behind.add(row.key)
                break
            job, local = planned
            jobs.append((self._resumed(job, local), local))  # not before it is sure to go
            total += size
        return jobs

    def _job(self, due: Due, now: float) -> tuple[Job, Local] | None:
        full = os.path.join(self.scanner.root, due.path)
        try:
            found = os.lstat(full)
        except OSError:
            self._vanished(due.key, due.path, sent=due.record is not None, state=1)
            return None
        local = local_state(found)
        action = self._decide(due, full, local, now)
        if isinstance(action, Nothing):
            self.ledger.set_state(due.key, CLEAN)
            return None
        if isinstance(action, Wait):
            self.ledger.retry_at(due.key, now + max(0.1, action.seconds), failed=False)
            return None
        paced = self._paced.get(due.key, 0.0)
        reads = isinstance(action, Append) or (isinstance(action, Whole) and action.compare)
        if reads and now < paced:
            self.ledger.retry_at(due.key, paced, failed=False)
            return None
        if isinstance(action, Append) and due.key not in self._left_behind:
            at = self._appends.next(due.item, due.seen, now, self.append_every_s)
            if at > now:
                self.ledger.retry_at(due.key, at, failed=False)
                return None
        self._left_behind.discard(due.key)
        job = Job(due, action, _temp(due.path), twin=self._twin(due, local), local=local)
        return job, local

    def _twin(self, due: Due, local: Local) -> Twin | None:
        """A file on the master that has the content of this code file."""
        if due.kind != CODE or due.record is not None or not 0 < local.size <= LINKED_BYTES:
            return None
        try:
            sha256 = fingerprint(self.descriptor, due.path, local.size).sha256
        except OSError:
            return None  # the sender finds out what is the matter
        return self.ledger.twin(self.number, sha256)

    def _decide(self, due: Due, full: bytes, local: Local, now: float) -> plan.Action:
        growing = plan.is_growing(due.kind, due.key.name)
        owned: Owned | None = self.committed.lookup(full) if growing else None  # outputs are of these names
        rest = plan.OVERDUE_S if due.key in self._ready else time.time() - local.mtime_ns / 1e9
        return plan.decide(local, owned, due.record, growing=growing, rest_s=rest, waited_s=now - due.seen)

    def _resumed(self, job: Job, local: Local) -> Job:
        partial = self._partial.pop(job.due.key, None)
        if partial is None:
            return job
        if isinstance(job.action, Whole) and partial.local == local and not job.action.cut:
            return replace(job, temp=partial.temp, start=partial.acked)
        self._orphans.append(partial)
        return job

    def _fleet_due(self, now: float) -> bytes:
        """This machine's status file, when it is time to leave it on the master."""
        at, last = self._fleet
        if not self.host or now - at < heartbeat.EVERY_S:
            return b""
        runs = []
        steps = self.committed.time_steps()
        for item in sorted({os.fsdecode(item.partition(b"/")[2]) for item in self._live}):
            try:
                run = self.scanner.run(item)
            except ScanError:
                return b""
            if run is not None and run.live:
                runs.append({"item": item, "state": run.state, "time_step": steps.get(item, run.time_step)})
        content = heartbeat.compose(self.host, heartbeat.version(), runs, self.ledger.backlog(self.number))
        self._fleet = (now, content)
        return content if runs or content != last else b""

    # -- results ---------------------------------------------------------------------------

    def confirmed(self, note: Confirmed) -> None:
        """A large file is on its way."""
        self.ledger.temp_progress(self.number, note.job.temp, note.confirmed)
        self._progress[note.job.due.key] = note.confirmed

    def outcome(self, outcome: Outcome, now: float) -> None:
        """A sender has come back."""
        self.link.done(outcome)
        self.counters.written_bytes += outcome.written_bytes
        self.ledger.drop_temps(self.number, outcome.removed)
        later = now if outcome.error is not None else now + plan.MAX_BACKOFF_S
        for drop in outcome.batch.drops:
            self._going.pop(drop.key, None)
            self.ledger.drop_ended(drop.key, None if drop in outcome.dropped else later)
        for result in outcome.results:
            self._land(result.job)
            if isinstance(result, Sent):
                self._sent(result, now)
            else:
                self._failed(result, now)
        open_jobs = jobs_without_result(outcome)
        for job in open_jobs:
            self._land(job)
            self._keep_partial(job)
        if outcome.error is not None:
            self._orphans += [Temp(temp, Key(0, b""), Local(0, 0, 0, 0), 0) for temp in outcome.batch.remove]
            self._batch_bytes = max(LEAST_BATCH_BYTES, self._batch_bytes // 2)
            self._link_failed(outcome.error, now)
            return
        for folder in outcome.batch.modes:
            self.ledger.set_folder_mode(folder.number, folder.mode)
        self._batch_bytes = min(BATCH_BYTES, self._batch_bytes * 2)
        if not any(isinstance(r, Failed) and isinstance(r.error, FullError) for r in outcome.results):
            self.health = Health()

    def _land(self, job: Job) -> None:
        self._flying.pop(job.due.key, None)
        self._ready.discard(job.due.key)

    def _sent(self, result: Sent, now: float) -> None:
        job, key = result.job, result.job.due.key
        self.ledger.sent(key, result.record, time.time())
        if job.due.kind == CODE and result.record.sha256 is not None:
            self.ledger.add_content(self.number, result.record.sha256, key)
        if _uses_temp(job):
            self.ledger.drop_temps(self.number, [job.temp])
        if not job.due.item_made:
            self.ledger.made_item(self.number, job.due.item)
        self._progress.pop(key, None)
        self._drop_partial(key)
        if len(self._paced) > MAX_PACED:
            self._paced.clear()
        self._paced[key] = now + plan.pace_s(result.read_s)
        self.counters.sent_files += 1
        self.counters.sent_bytes += _size(job)
        self.counters.last_success = time.time()
        if result.kept:
            self.counters.kept += 1
            self.ledger.set_meta(f"kept:{result.kept.decode('utf-8', 'backslashreplace')}", time.time())
        wanted = result.record.acked
        if not isinstance(job.action, Permit):
            wanted = job.action.upto if isinstance(job.action, Append) else job.action.size
        if key in self._again or result.record.acked < wanted:
            self._again.discard(key)
            prio = plan.priority(job.due.kind, 0)
            self.ledger.mark(key, self.number, prio, max(0, wanted - result.record.acked), now)
            self.ledger.retry_at(key, now + plan.PACE_S, failed=False)

    def _failed(self, result: Failed, now: float) -> None:
        job, error, key = result.job, result.error, result.job.due.key
        self._again.discard(key)
        if _uses_temp(job):
            self._orphans.append(Temp(job.temp, key, Local(0, 0, 0, 0), 0))
        if isinstance(error, BuriedError):
            self.ledger.bury(self.number, error.subject)
        elif isinstance(error, MovedError):
            self.ledger.park_item(self.number, job.due.item, error.why, error.hint)
        elif isinstance(error, DeniedError):
            self.ledger.set_state(key, PARKED, str(error), error.hint)
        elif isinstance(error, NotYetError):
            self.ledger.retry_at(key, now + plan.REST_S, failed=False)
        elif isinstance(error, MissingError):
            self.ledger.forget_copy(key)
            self.ledger.retry_at(key, now, failed=True)
        elif isinstance(error, FullError):
            self.ledger.retry_at(key, now, failed=False, reason=str(error))
            if self.health.may_try(now):  # what was under way when the disk was found full is one failure
                self.health = self.health.failed(now, random.random(), error.why, error.hint)  # noqa: S311
        else:
            self._try_later(job, error, now)

    def _try_later(self, job: Job, error: Exception, now: float) -> None:
        key, tries = job.due.key, job.due.tries
        if isinstance(error, FileNotFoundError):
            self._vanished(key, job.due.path, sent=job.due.record is not None, state=1)
            return
        if isinstance(error, UnreadableError):
            error = error.why
        if isinstance(error, OSError):
            self._unreadable(key, tries, error, now)
            return
        if isinstance(error, SourceChangedError):
            self.ledger.retry_at(key, now + plan.REST_S, failed=True)
            return
        hint = error.hint if isinstance(error, TargetError) else ""
        if tries >= plan.MAX_TRIES:
            self.ledger.set_state(
                key, PARKED, str(error), hint or "look at the file, then: rla-agent replicate retry"
            )
            return
        wait = plan.backoff_s(tries + 1, random.random())  # noqa: S311 - jitter
        self.ledger.retry_at(key, now + wait, failed=True, reason=str(error))

    def _unreadable(self, key: Key, tries: int, error: OSError, now: float) -> None:
        """A file here gave an error: some pass, of some somebody must take care."""
        wait = plan.backoff_s(tries + 1, random.random())  # noqa: S311 - jitter
        try:
            why = unread(error)
        except ScanError as short:
            self.ledger.retry_at(key, now + max(1.0, wait), failed=tries < SHORT_TRIES, reason=str(short))
            return
        if error.errno in WAYS_OUT or tries >= plan.MAX_TRIES:
            self.ledger.set_state(key, PARKED, why.reason, f"{why.fix}; then: rla-agent replicate retry")
        else:
            self.ledger.retry_at(key, now + wait, failed=True, reason=why.reason)

    def _keep_partial(self, job: Job) -> None:
        confirmed = self._progress.pop(job.due.key, job.start)
        for temp in self.ledger.temps(self.number) if confirmed >= RESUME_BYTES else ():
            if temp.temp == job.temp:
                self._partial[job.due.key] = temp
                return
        if _uses_temp(job):
            self._orphans.append(Temp(job.temp, job.due.key, Local(0, 0, 0, 0), 0))

    def _link_failed(self, error: TargetError, now: float) -> None:
        jitter = random.random()  # noqa: S311 - jitter
        if isinstance(error, LoginError):
            self.health = self.health.refused(now, jitter, str(error), error.hint)
        elif isinstance(error, (HostKeyError, BlockedError)):
            self.health = self.health.stopped(str(error), error.hint)
        else:
            self.health = self.health.failed(now, jitter, str(error), error.hint)

    def retry(self) -> None:
        """Somebody acted: try again at once."""
        self.health = Health()
        self.look_now()

    def close(self) -> None:
        """Stop sending."""
        self.link.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _attempts(job: Job, local: Local) -> tuple[Attempt, ...]:
    assert not isinstance(job.action, Permit)
    if isinstance(job.action, Append):
        return (Attempt(job.action.upto, None),)
    sent = Attempt(job.action.size, local.mtime_ns // 10**9)
    return (sent,) if job.twin is None else (sent, Attempt(job.twin.left.size, job.twin.left.mtime_s))


def _uses_temp(job: Job) -> bool:
    return isinstance(job.action, Whole) or _size(job) > PAGED_BYTES


def _size(job: Job) -> int:
    if isinstance(job.action, Permit):
        return 0
    return job.action.upto - job.action.offset if isinstance(job.action, Append) else job.action.size


def _temp(path: bytes) -> bytes:
    folder, slash, _ = path.rpartition(b"/")
    return folder + slash + b".rla-tmp-" + secrets.token_hex(8).encode()
