"""Scheduler of one database's work at its target.

Changed files go into the ledger (`changes`). `dispatch` gives batches of due work to idle senders, `outcome`
takes their results.

Belongs to the worker's thread. `now` is the monotonic clock; wall time is used only for how long a file has
rested, since its mtime is wall time.
"""

from __future__ import annotations

import math
import os
import random
import threading
from dataclasses import dataclass, field
from typing import Final

from rla_agent.replicate import fleet
from rla_agent.replicate.backend.errors import FullError
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Drop, Due, Key, Temp, Unconfirmed
from rla_agent.replicate.worker import file_decision, retry_backoff, sharded_order
from rla_agent.replicate.worker.batch import BatchOutcome, Confirmed, SendBatch
from rla_agent.replicate.worker.changed_files import ChangedFiles
from rla_agent.replicate.worker.committed import Committed
from rla_agent.replicate.worker.confirm import Confirmations
from rla_agent.replicate.worker.due_jobs import BATCH_FILES, DueJobs
from rla_agent.replicate.worker.file_decision import ReplaceFile
from rla_agent.replicate.worker.hold_while_sent import CheckpointHold
from rla_agent.replicate.worker.in_flight import InFlight
from rla_agent.replicate.worker.job_results import Counters, JobResults
from rla_agent.replicate.worker.leftovers import Leftovers
from rla_agent.replicate.worker.read_faults import ScanError
from rla_agent.replicate.worker.retry_backoff import Health
from rla_agent.replicate.worker.scan import Scanner, item_name
from rla_agent.replicate.worker.send_job import Failed, SendJob, Sent
from rla_agent.replicate.worker.sender_threads import SenderThreads, health_after
from rla_agent.replicate.worker.sharded_parts import WaitingParts
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.text.terminal_text import printable

MOST_LOOKS: Final = 32  # attempts in a turn to find due files that may be sent
BATCH_BYTES: Final = 4 << 20  # at most; half of it after each broken one: a bad link gets something done
LEAST_BATCH_BYTES: Final = 32 << 10
LONG_S: Final = 5.0  # a batch that takes longer delays the other work of the last sender
MOVED_S: Final = 60.0  # between two checks whether missing item folders are back
MOVED_ALONE_S: Final = 600.0  # the same where a session would have to be opened for that alone
MOVED_A_BATCH: Final = 64
DROPS_A_BATCH: Final = 256  # files that max_to_keep dropped
MODES_A_BATCH: Final = 256  # folders


@dataclass
class TargetDatabase:
    """A database at a target; see the module.

    `confirms`: acknowledged bytes may yet be lost; `target`: its name in notes of pruned files.
    """

    number: int
    scanner: Scanner
    link: SenderThreads
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
        self._leftovers = Leftovers(self.ledger, self.number)
        self.confirmations = Confirmations(self.ledger, self.number, needed=self.confirms)
        self.parts = WaitingParts(
            self.ledger, self.number, self.scanner.root, self.target, self._leftovers.give_up
        )
        self.changes = ChangedFiles(
            *(self.ledger, self.number, self.scanner, self._flight, self._leftovers, self.parts),
            mirror=self.mirror,
        )
        self._hold = CheckpointHold(
            self.scanner.root, lambda folder: self.ledger.states(self.number, folder), mirror=self.mirror
        )
        self._jobs = DueJobs(
            *(self.number, self.scanner, self.ledger, self.committed, self.changes, self.confirmations),
            *(self._flight, self._leftovers, self._going, self._hold, self.append_every_s),
        )
        self._results = JobResults(
            *(self.number, self.ledger, self.changes, self.confirmations, self._flight, self._leftovers),
            *(self._jobs, self.counters),
        )
        self._unsound: set[Key] = set()  # the master's disk gave an error for them, while more was being sent
        self._given_at: dict[int, float] = {}  # when each sender got its last batch
        self._checked = False  # the last batch of the last sender was one of checks
        self._moved_looked = -math.inf
        self._moved_after = b""  # the item folder that was checked last
        self._fleet: tuple[float, bytes] = (0.0, b"")
        self._batch_bytes = BATCH_BYTES

    def look_now(self) -> None:
        """Begin a scan of everything, and check all unconfirmed files."""
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

    def dispatch(self, now: float) -> None:
        """Give due work to idle senders."""
        self._hold.look(self._flight.jobs.values(), now)
        if not self.health.may_try(now) or not self._open_root():
            return
        for number in self.link.idle():
            if self.health.tries and self.link.busy:
                return  # one sender tries first
            self._give(number, now)

    def _give(self, number: int, now: float) -> None:
        urgent_only = number == 0 and self.link.connections > 1
        prios = (file_decision.URGENT, file_decision.SOON if urgent_only else file_decision.LAST)
        waits = urgent_only and self._flight.jobs and not self._is_held_up(now)
        syncs = () if waits else self.confirmations.take_syncs(now)
        checks = self._take_checks(number, now)
        jobs: list[SendJob] = []
        if not syncs and not checks:  # neither these nor logs that are checked wait behind a large file
            jobs = self._take_jobs(prios, now)
        status = self._fleet_due(now)
        dropped = self.ledger.dropped(self.number, now, DROPS_A_BATCH + len(self._going))
        drops = [
            drop for drop in sharded_order.in_order(dropped, self._jobs.states) if drop.key not in self._going
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
        self._hold.given(jobs, now)
        self._going.update((drop.key, drop) for drop in drops)
        used = self.ledger.made_any(self.number)
        batch = SendBatch(
            *(self.number, self.descriptor, tuple(jobs), remove, status, modes, tuple(drops), used),
            *(self.confirms, syncs, checks, moved, parts),
        )
        self._given_at[number] = now
        self.link.give(number, batch)

    def _take_jobs(self, prios: tuple[int, int], now: float) -> list[SendJob]:
        """The next batch. Files that wait for others are skipped for those behind them."""
        limit = BATCH_FILES + len(self._flight.jobs)
        self._jobs.forget_order()
        former: list[Due] = []
        for _ in range(MOST_LOOKS):
            due = self.ledger.due(self.number, now, prios, limit)
            jobs = self._jobs.take(due, now, self.descriptor, self._batch_bytes)
            if jobs or len(due) < limit or due == former:
                return jobs
            former = due
        return []

    def _is_held_up(self, now: float) -> bool:
        """Whether the last sender has been busy with one batch for long: a large file."""
        last = self.link.connections - 1
        return last in self.link.busy and now - self._given_at.get(last, now) > LONG_S

    def _take_checks(self, number: int, now: float) -> tuple[Unconfirmed, ...]:
        """Files to check, in every other batch of a sender while there is something to send.

        The last sender checks, since the first one is for urgent files; any sender while the last one is
        blocked.
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
        """Missing item folders, when it is time to check whether they are back.

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

    def confirmed(self, note: Confirmed) -> None:
        """Store the progress of a large file."""
        self._leftovers.confirmed(note)

    def outcome(self, outcome: BatchOutcome, now: float) -> None:
        """Take a sender's outcome."""
        self.link.done(outcome)
        self.counters.written_bytes += outcome.written_bytes
        self.ledger.drop_temps(self.number, self._leftovers.cleared(outcome.removed, now))
        later = now if outcome.error is not None else now + retry_backoff.MAX_BACKOFF_S
        for drop in outcome.batch.drops:
            self._going.pop(drop.key, None)
            self.ledger.drop_ended(drop.key, None if drop in outcome.dropped else later)
            if drop in outcome.dropped and drop.key.name == sharded_order.MARK:
                self.changes.hint(drop.path, now)  # a later save's may be here
        self.confirmations.synced(outcome.synced)
        self._unsound.update(file.key for file in outcome.unsound)
        self.confirmations.checked(outcome.batch.checks, outcome.checked)
        self._looked(outcome, now)
        for result in outcome.results:
            self._flight.land(result.job)
            if isinstance(result, Sent):
                self._results.sent(result, now, can_sync=outcome.can_sync)
                self._hold.sent(result.job)
            else:
                self._results.failed(result, now)
                self._look_full(result.error, now)
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

    def _look_full(self, error: Exception, now: float) -> None:
        """Pause sending where the master's disk is full; all jobs under way count as one failure."""
        if isinstance(error, FullError) and self.health.may_try(now):
            self.health = self.health.failed(now, random.random(), error.why, error.hint)  # noqa: S311

    def _looked(self, outcome: BatchOutcome, now: float) -> None:
        """Handle changes on the master that others made."""
        for item in outcome.back:
            self.ledger.returned(self.number, item)
        for item in self.parts.looked(outcome.batch.parts, outcome.parts):
            self.changes.hint_item(item, now)

    def _send_unsound_anew(self) -> None:
        """Replace files for which the master's disk gave an error, once those under way have arrived."""
        ready = [key for key in self._unsound if key not in self._flight.jobs]
        self._unsound.difference_update(ready)
        for key in ready:
            self.ledger.send_anew(key)

    def retry(self) -> None:
        """Retry at once, after somebody acted, over a new session: the old one may see an older master."""
        self.health = Health()
        self.link.renew()
        self._moved_looked = -math.inf
        self.look_now()

    def close(self) -> None:
        """Stop sending. The data root stays open as long as a sender reads in it."""
        self._hold.close()
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
