"""Database at one target: due work as batches.

What has changed goes into the ledger (`changes`). `dispatch` gives idle senders what is due, `outcome` takes
what came of it.

Belongs to the worker's thread. Times: `now` is the monotonic clock; wall time is asked for only to see how
long a file has rested, for its mtime is wall time.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from rla_agent.replicate import fleet
from rla_agent.replicate.backend.errors import (
    DeniedError,
    FullError,
    MissingError,
    SourceChangedError,
    TargetError,
    UnreadableError,
)
from rla_agent.replicate.backend.remote_stat import Twin
from rla_agent.replicate.file_state import Local, Owned
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import (
    CLEAN,
    DROPPED,
    PARKED,
    Drop,
    Due,
    Key,
    Temp,
    Unconfirmed,
)
from rla_agent.replicate.tombstones import BuriedError, MovedError
from rla_agent.replicate.worker import health, pacing, plan, sharded_order
from rla_agent.replicate.worker.batch import BatchOutcome, Confirmed, SendBatch
from rla_agent.replicate.worker.changed_files import ChangedFiles
from rla_agent.replicate.worker.committed import Committed
from rla_agent.replicate.worker.confirm import Confirmations
from rla_agent.replicate.worker.health import Health
from rla_agent.replicate.worker.in_flight import InFlight
from rla_agent.replicate.worker.leftovers import Leftovers
from rla_agent.replicate.worker.link import Link, health_after
from rla_agent.replicate.worker.plan import Append, ReplaceFile, SetMode, UpToDate, Wait
from rla_agent.replicate.worker.scan import Scanner, item_name
from rla_agent.replicate.worker.send_job import Failed, NotYetError, SendJob, Sent
from rla_agent.replicate.worker.sharded_lost import of_whole
from rla_agent.replicate.worker.sharded_parts import WaitingParts
from rla_agent.replicate.worker.source_file import fingerprint, local_state
from rla_agent.replicate.worker.unread import WAYS_OUT, ScanError, unread
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.layout import (
    CHECKPOINT,
    CODE,
)
from rla_client.contract.text.terminal_text import printable

BATCH_FILES: Final = 64
BATCH_BYTES: Final = 4 << 20  # at most; half of it after each broken one: a bad link gets something done
LEAST_BATCH_BYTES: Final = 32 << 10
LONG_S: Final = 5.0  # a batch that takes longer holds up what else the last sender does
MOVED_S: Final = 60.0  # between two looks whether item folders that were gone are back
MOVED_ALONE_S: Final = 600.0  # the same where a session would have to be opened for that alone
MOVED_A_BATCH: Final = 64
DROPS_A_BATCH: Final = 256  # files that max_to_keep dropped
MODES_A_BATCH: Final = 256  # folders
MAX_PACED: Final = 20_000
SHORT_TRIES: Final = 8  # counted where this process is short of something: that alone parks no file
LINKED_BYTES: Final = 16 << 20  # a larger code file is sent anew; this much is held in memory meanwhile


@dataclass
class Counters:
    """For status: since this worker started."""

    written_bytes: int = 0
    sent_files: int = 0
    sent_bytes: int = 0
    kept: int = 0
    last_success: float = 0.0


@dataclass
class Database:
    """A database at a target; see the module.

    `confirms`: what the target acknowledges may yet be lost; `target`: as notes of pruned files name it.
    """

    number: int
    scanner: Scanner
    link: Link
    ledger: Ledger
    committed: Committed
    health: Health = field(default_factory=Health)
    counters: Counters = field(default_factory=Counters)
    mirror: bool = False
    append_every_s: float = 0.0
    confirms: bool = True
    target: str = ""

    def __post_init__(self) -> None:
        """Open the data root."""
        self.descriptor = -1
        self._flight = InFlight()
        self._going: dict[Key, Drop] = {}  # being deleted on the master: nothing is sent under their names
        self._paced: dict[Key, float] = {}
        self._appends = pacing.Appends()
        self._leftovers = Leftovers(self.ledger, self.number)
        self.confirmations = Confirmations(self.ledger, self.number, needed=self.confirms)
        self.parts = WaitingParts(
            self.ledger, self.number, self.scanner.root, self.target, self._leftovers.give_up
        )
        self.changes = ChangedFiles(
            *(self.ledger, self.number, self.scanner, self._flight, self._leftovers, self.parts),
            mirror=self.mirror,
        )
        self._unsound: set[Key] = set()  # of which the master's disk gave an error, while more was being sent
        self._given_at: dict[int, float] = {}  # when each sender got its last batch
        self._checked = False  # the last batch of the last sender was one of checks
        self._moved_looked = -math.inf
        self._moved_after = b""  # the item folder that was looked for last
        self._fleet: tuple[float, bytes] = (0.0, b"")
        self._batch_bytes = BATCH_BYTES

    # -- looking ---------------------------------------------------------------------------

    def look_now(self) -> None:
        """Begin to look at everything, and at what the master has not confirmed."""
        self.changes.look_now()
        self.confirmations.doubt()

    def write_checksums(self, now: float) -> None:
        """Write the sums of ended runs that are on the master."""
        if not self._open_root():
            return
        compact, flying = self.append_every_s > 0, self._flight.jobs.values()
        paths, problem = self.changes.ended.write_sums(self.descriptor, flying, compact=compact)
        self.changes.problem = problem or self.changes.problem
        for path in paths:
            self.changes.hint(path, now, whole=True)

    def _open_root(self) -> bool:
        if self.descriptor < 0:
            try:
                self.descriptor = open_root(self.scanner.root)
            except OSError as error:
                self.changes.problem = f"{printable(os.fsdecode(self.scanner.root))}: {error.strerror}"
                return False
        return True

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
        waits = urgent_only and self._flight.jobs and not self._is_held_up(now)
        syncs = () if waits else self.confirmations.take_syncs(now)
        checks = self._take_checks(number, now)
        jobs: list[SendJob] = []
        if not syncs and not checks:  # neither waits behind a large file, nor do logs that are looked at
            due = self.ledger.due(self.number, now, prios, BATCH_FILES + len(self._flight.jobs))
            jobs = self._jobs(due, now)
        status = self._fleet_due(now)
        dropped = self.ledger.dropped(self.number, now, DROPS_A_BATCH + len(self._going))
        drops = [
            drop for drop in sharded_order.in_order(dropped, self._states) if drop.key not in self._going
        ]
        remove, parts = self._leftovers.take_orphans(now), self.parts.take(now)
        works = any((jobs, remove, status, self.changes.modes, drops, checks, syncs, parts))
        moved = self._take_moved(now, connects=not works and not self.link.is_open(number))
        if not works and not moved:
            return
        modes = tuple(self.changes.modes.pop(key) for key in list(self.changes.modes)[:MODES_A_BATCH])
        temps = [
            Temp(job.temp, job.due.key, job.local, job.start, job.sure)
            for job in jobs
            if isinstance(job.action, ReplaceFile) and job.local is not None
        ]
        self.ledger.add_temps(self.number, temps)
        for job in jobs:
            self._flight.jobs[job.due.key] = job
            if job.attempts:
                self.ledger.attempt(job.due, job.attempts)
        self.ledger.commit()
        self._going.update((drop.key, drop) for drop in drops)
        used = self.ledger.made_any(self.number)
        batch = SendBatch(
            *(self.number, self.descriptor, tuple(jobs), remove, status, modes, tuple(drops), used),
            *(self.confirms, syncs, checks, moved, parts),
        )
        self._given_at[number] = now
        self.link.give(number, batch)

    def _is_held_up(self, now: float) -> bool:
        """Whether the last sender has been busy with one batch for long: a large file."""
        last = self.link.connections - 1
        return last in self.link.busy and now - self._given_at.get(last, now) > LONG_S

    def _take_checks(self, number: int, now: float) -> tuple[Unconfirmed, ...]:
        """Files to look at, for every other batch of a sender while there is something to send.

        That is the last one, for the first one is for what is urgent; while that is held up, any.
        """
        if number != self.link.connections - 1 and not self._is_held_up(now):
            return ()
        if self._checked and self.ledger.any_due(self.number):
            self._checked = False
            return ()
        checks = self.confirmations.take_checks(self._flight.jobs, self.link, now)
        self._checked = bool(checks)
        return checks

    def _take_moved(self, now: float, *, connects: bool) -> tuple[bytes, ...]:
        """Item folders that were gone, when it is time to see whether they are back.

        `connects`: a session would be opened for that alone.
        """
        if now < self._moved_looked + (MOVED_ALONE_S if connects else MOVED_S):
            return ()
        items = self.ledger.moved_items(self.number, self._moved_after, MOVED_A_BATCH)
        if len(items) == MOVED_A_BATCH:
            self._moved_after = items[-1]  # the others come at once
        else:
            self._moved_after, self._moved_looked = b"", now
        return tuple(items)

    def _jobs(self, due: list[Due], now: float) -> list[SendJob]:
        jobs: list[SendJob] = []
        total = 0
        for row in due:
            if (
                row.key in self._flight.jobs
                or row.key in self._going
                or self.confirmations.is_checked(row.key)
            ):
                continue
            job = self._job(row, now)
            if job is None:
                continue
            if jobs and (total + job.size > self._batch_bytes or len(jobs) >= BATCH_FILES):
                if isinstance(job.action, Append):
                    self._flight.left_behind.add(row.key)
                break
            jobs.append(self._leftovers.resumed(job))  # not before it is sure to go
            total += job.size
        return jobs

    def _job(self, due: Due, now: float) -> SendJob | None:
        full = os.path.join(self.scanner.root, due.path)
        try:
            local = local_state(os.lstat(full))
        except OSError:
            self.changes.vanished(due.key, due.path, sent=due.record is not None, state=1)
            return None
        action = self._decide(due, full, local, now)
        if isinstance(action, UpToDate):
            self._flight.settle(due.key)
            self.ledger.set_state(due.key, CLEAN)
            return None
        at = now + max(0.1, action.seconds) if isinstance(action, Wait) else self._earliest(due, action, now)
        if isinstance(action, Wait) or at > now:
            self.ledger.retry_at(due.key, at, failed=False)
            return None
        self._flight.left_behind.discard(due.key)
        whole = of_whole(self.ledger, self.number, due.path, due.item)
        twin = self._twin(due, local)
        return SendJob(due, action, _temp(due.path), twin=twin, local=local, of_whole=whole)

    def _earliest(self, due: Due, action: ReplaceFile | Append | SetMode, now: float) -> float:
        """When a file may be read, and appended to, again."""
        paced = self._paced.get(due.key, 0.0)
        if now < paced and (
            isinstance(action, Append) or (isinstance(action, ReplaceFile) and action.compare)
        ):
            return paced
        if isinstance(action, Append) and due.key not in self._flight.left_behind:
            return self._appends.next(due.item, due.seen, now, self.append_every_s)
        return now

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
        rest = plan.OVERDUE_S if due.key in self._flight.ready else time.time() - local.mtime_ns / 1e9
        action = plan.decide(local, owned, due.record, growing=growing, rest_s=rest, waited_s=now - due.seen)
        sharded = None if isinstance(action, UpToDate) else sharded_order.split(due.kind, due.path)
        if sharded is not None and not self._goes_in_order(due, *sharded):
            return Wait(sharded_order.LOOK_AGAIN_S)
        return action

    def _states(self, folder: bytes) -> dict[bytes, tuple[int, ...]]:
        return self.ledger.states(self.number, folder)

    def _goes_in_order(self, due: Due, checkpoint: bytes, below: bytes) -> bool:
        """Whether a file of a sharded checkpoint may go now; what calls another save whole goes before it."""
        if sharded_order.waits_for_others(self.scanner.root, checkpoint, below, self._states):
            return False
        mark = self._mark_of(checkpoint, due.item)
        if due.key == mark:
            return True
        if mark in self._flight.jobs:
            return False
        if sharded_order.is_of_another_save(self.scanner.root, checkpoint, self._states):
            self.ledger.set_state(mark, DROPPED)
            return False
        return True

    def _mark_of(self, checkpoint: bytes, item: bytes) -> Key:
        """The file that calls a sharded checkpoint whole."""
        own = sharded_order.own_folder(checkpoint)
        return Key(self.ledger.folder(self.number, own, CHECKPOINT, item), sharded_order.MARK)

    def _fleet_due(self, now: float) -> bytes:
        """This machine's status file, when it is time to leave it on the master."""
        at, last = self._fleet
        if not self.link.host or now - at < fleet.FLEET_EVERY_S:
            return b""
        runs = []
        steps = self.committed.time_steps()
        for item in sorted(set(map(item_name, self.changes.live))):
            try:
                run = self.scanner.run(item)
            except ScanError:
                return b""
            if run is not None and run.live:
                runs.append({"item": item, "state": run.state, "time_step": steps.get(item, run.time_step)})
        content = fleet.machine_status(
            self.link.host, self.link.machine, runs, self.ledger.backlog(self.number)
        )
        self._fleet = (now, content)
        return content if runs or content != last else b""

    # -- results ---------------------------------------------------------------------------

    def confirmed(self, note: Confirmed) -> None:
        """A large file is on its way."""
        self._leftovers.confirmed(note)

    def outcome(self, outcome: BatchOutcome, now: float) -> None:
        """A sender has come back."""
        self.link.done(outcome)
        self.counters.written_bytes += outcome.written_bytes
        self.ledger.drop_temps(self.number, self._leftovers.cleared(outcome.removed, now))
        later = now if outcome.error is not None else now + health.MAX_BACKOFF_S
        for drop in outcome.batch.drops:
            self._going.pop(drop.key, None)
            self.ledger.drop_ended(drop.key, None if drop in outcome.dropped else later)
            if drop in outcome.dropped and drop.key.name == sharded_order.MARK:
                self.changes.hint(drop.path, now)  # that of a later save may be here
        self.confirmations.synced(outcome.synced)
        self._unsound.update(file.key for file in outcome.unsound)
        self.confirmations.checked(outcome.batch.checks, outcome.checked)
        self._looked(outcome, now)
        for result in outcome.results:
            self._flight.land(result.job)
            if isinstance(result, Sent):
                self._sent(result, now, can_sync=outcome.can_sync)
            else:
                self._failed(result, now)
        for job in outcome.open_jobs():
            self._flight.land(job)
            self._leftovers.keep(job)
        self._send_unsound_anew()
        if outcome.error is not None:
            self._leftovers.orphans += [temp for temp in outcome.batch.remove if temp not in outcome.removed]
            self._batch_bytes = max(LEAST_BATCH_BYTES, self._batch_bytes // 2)
            self.health = health_after(self.health, outcome.error, now)
            return
        for folder in outcome.batch.modes:
            self.ledger.set_folder_mode(folder.number, folder.mode)
        self._batch_bytes = min(BATCH_BYTES, self._batch_bytes * 2)
        if not any(isinstance(r, Failed) and isinstance(r.error, FullError) for r in outcome.results):
            self.health = Health()

    def _looked(self, outcome: BatchOutcome, now: float) -> None:
        """What has changed on the master without us."""
        for item in outcome.back:
            self.ledger.returned(self.number, item)
        for item in self.parts.looked(outcome.batch.parts, outcome.parts):
            self.changes.hint_item(item, now)

    def _send_unsound_anew(self) -> None:
        """What the master's disk gave an error for goes as a whole; what is under way first lands."""
        ready = [key for key in self._unsound if key not in self._flight.jobs]
        self._unsound.difference_update(ready)
        for key in ready:
            self.ledger.send_anew(key)

    def _sent(self, result: Sent, now: float, *, can_sync: bool) -> None:
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
        self._leftovers.sent(key)
        if len(self._paced) > MAX_PACED:
            self._paced.clear()
        self._paced[key] = now + pacing.pace_s(result.read_s)
        self.counters.sent_files += 1
        self.counters.sent_bytes += job.size
        self.counters.last_success = time.time()
        if result.kept:
            self.counters.kept += 1
            self.ledger.set_meta(f"kept:{result.kept.decode('utf-8', 'backslashreplace')}", time.time())
        wanted = result.record.acked
        if not isinstance(job.action, SetMode):
            wanted = job.action.upto if isinstance(job.action, Append) else job.action.size
        if key in self._flight.again or result.record.acked < wanted:
            self._flight.again.discard(key)
            prio = plan.priority(job.due.kind, 0)
            self.ledger.mark(key, self.number, prio, max(0, wanted - result.record.acked), now)
            self.ledger.retry_at(key, now + pacing.PACE_S, failed=False)

    def _failed(self, result: Failed, now: float) -> None:
        job, error, key = result.job, result.error, result.job.due.key
        self._flight.again.discard(key)
        if job.uses_temp:
            self._leftovers.orphans.append(job.temp)
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
            self.ledger.retry_at(key, now + plan.REST_S, failed=True)
            return
        hint = error.hint if isinstance(error, TargetError) else ""
        if tries >= plan.MAX_TRIES:
            self.ledger.set_state(
                key, PARKED, str(error), hint or "look at the file, then: rla-agent replicate retry"
            )
            return
        wait = health.backoff_s(tries + 1, random.random())  # noqa: S311 - jitter
        self.ledger.retry_at(key, now + wait, failed=True, reason=str(error))

    def _unreadable(self, key: Key, tries: int, error: OSError, now: float) -> None:
        """A file here gave an error: some pass, of some somebody must take care."""
        wait = health.backoff_s(tries + 1, random.random())  # noqa: S311 - jitter
        try:
            why = unread(error)
        except ScanError as short:
            self.ledger.retry_at(key, now + max(1.0, wait), failed=tries < SHORT_TRIES, reason=str(short))
            return
        if error.errno in WAYS_OUT or tries >= plan.MAX_TRIES:
            self.ledger.set_state(key, PARKED, why.reason, f"{why.fix}; then: rla-agent replicate retry")
        else:
            self.ledger.retry_at(key, now + wait, failed=True, reason=why.reason)

    def retry(self) -> None:
        """Somebody acted: try again at once, over a new session, for the old one may know an older master."""
        self.health = Health()
        self.link.renew()
        self._moved_looked = -math.inf
        self.look_now()

    def close(self) -> None:
        """Stop sending. The data root stays open as long as a sender reads in it."""
        left, root, self.descriptor = self.link.close(), self.descriptor, -1
        if root < 0:
            return
        if left:
            threading.Thread(target=_close_after, args=(left, root), name="close-root", daemon=True).start()
        else:
            os.close(root)


def _close_after(threads: list[threading.Thread], root: int) -> None:
    for thread in threads:
        thread.join()
    os.close(root)


def _temp(path: bytes) -> bytes:
    folder, slash, _ = path.rpartition(b"/")
    return folder + slash + b".rla-tmp-" + secrets.token_hex(8).encode()
