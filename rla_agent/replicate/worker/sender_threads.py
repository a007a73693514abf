"""Sender threads of one target.

Each thread has a session of its own. The worker's thread hands out batches; a thread sends one at a time and
puts a `BatchOutcome` on the shared queue. A session is opened at the first batch and closed after
`IDLE_CLOSE_S` without one. Begin and end of sessions are recorded (`SenderThreads.begun_at` and so on),
because acknowledged bytes may be lost once a session has ended.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from rla_agent.replicate import fleet
from rla_agent.replicate.backend.errors import (
    BlockedError,
    DeniedError,
    HostKeyError,
    LinkError,
    LoginError,
    TargetError,
    TransientError,
)
from rla_agent.replicate.backend.remote_stat import same
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.ledger_rows import Drop, Unconfirmed
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.batch import BatchOutcome, Confirmed, SendBatch, without_result
from rla_agent.replicate.worker.confirm import Checked, Unsynced, check_all
from rla_agent.replicate.worker.empty_root import check_mounted
from rla_agent.replicate.worker.retry_backoff import Health
from rla_agent.replicate.worker.send import Sender
from rla_agent.replicate.worker.send_job import Failed, Result, SendJob
from rla_agent.replicate.worker.send_modes import set_folder_modes
from rla_agent.replicate.worker.sharded_master import PartFound, look_all
from rla_client.contract.errors import ConfigError, RlaError
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.layout import CHECKPOINT

IDLE_CLOSE_S: Final = 60.0
ALIVE_S: Final = 5.0  # between two checks of an idle session's connection
JOIN_S: Final = 5.0
NOTE_BYTES: Final = 1 << 20  # confirmed bytes of a large file between two updates of the ledger
log = logging.getLogger("rla_agent.replicate")


class TokenBucket:
    """At most `rate` bytes per second over all senders; 0: no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, count: int, stop: threading.Event) -> None:
        """Wait until `count` more bytes are allowed."""
        if self._rate <= 0:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            wait = self._free_at - now
        stop.wait(wait)


@dataclass
class SenderThreads:
    """Threads that send to one target.

    Attributes:
        open_session: connects.
        outcomes: where results go; shared with other links.
        wake: called after each result.
        connections: number of threads.
        rate: bytes per second over all of them, 0 for no limit.
        host, machine: this machine's name and `fleet.fleet_id`, for its status file on the master.
        begun_at, ended_at, broken_at: when a session last began, ended, ended by itself; monotonic seconds.
            Those of an earlier process count as ended when this one began.
        ended_on: when one last ended, in Unix seconds.
    """

    open_session: Callable[[], TargetSession]
    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed]
    wake: Callable[[], None]
    connections: int
    rate: int = 0
    host: str = ""
    machine: str = ""
    passed_bytes: int = 0
    busy: set[int] = field(default_factory=set)
    begun_at: float = 0.0
    ended_at: float = field(default_factory=time.monotonic)
    broken_at: float = 0.0
    ended_on: float = field(default_factory=time.time)
    _renewed: dict[int, int] = field(default_factory=dict)
    _renewals: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _inboxes: list[queue.SimpleQueue[SendBatch | None]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _sessions: dict[int, TargetSession] = field(default_factory=dict)
    _old_status_gone: bool = False

    def __post_init__(self) -> None:
        """Start the threads."""
        self._bucket = TokenBucket(self.rate)
        for number in range(self.connections):
            self._inboxes.append(queue.SimpleQueue())
            thread = threading.Thread(target=self._run, args=(number,), name=f"sender-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def idle(self) -> list[int]:
        """Senders that wait for a batch."""
        return [number for number in range(self.connections) if number not in self.busy]

    def is_open(self, number: int) -> bool:
        """Whether a sender has a session."""
        return number in self._sessions

    def give(self, number: int, batch: SendBatch) -> None:
        """Give a batch to a sender."""
        self.busy.add(number)
        self._inboxes[number].put(batch)

    def done(self, outcome: BatchOutcome) -> None:
        """Mark the sender of an outcome as free."""
        self.busy.discard(outcome.sender)

    def renew(self) -> None:
        """Let each sender open a new session at its next batch."""
        self._renewals += 1

    def close(self) -> list[threading.Thread]:
        """Stop the threads; files on their way are dropped, and continue at the next start.

        Returns:
            Threads that hang in a target: they may still read the data root.
        """
        self._stop.set()
        for inbox in self._inboxes:
            inbox.put(None)
        for session in list(self._sessions.values()):
            session.close()
        deadline = time.monotonic() + JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread for thread in self._threads if thread.is_alive()]

    def _run(self, number: int) -> None:
        used = time.monotonic()
        while True:
            try:
                batch = self._inboxes[number].get(timeout=ALIVE_S)
            except queue.Empty:
                session = self._sessions.get(number)
                if session is not None and not session.alive:
                    self._drop(number, broken=True)
                    self.wake()
                elif time.monotonic() - used >= IDLE_CLOSE_S:
                    self._drop(number)
                continue
            if batch is None or self._stop.is_set():
                self._drop(number)
                return
            outcome = self._send(number, batch)
            self.outcomes.put(outcome)
            if outcome.error is not None:  # later than the outcome, which is checked, too
                self._drop(number, broken=True)
            self.wake()
            if batch.works:
                used = time.monotonic()

    def _send(self, number: int, batch: SendBatch) -> BatchOutcome:
        results: list[Result] = []
        session: TargetSession | None = None
        error: TargetError | None = None
        removed: tuple[bytes, ...] = ()
        dropped: list[Drop] = []
        checked: list[Checked] = []
        synced: tuple[Unsynced, ...] = ()
        unsound: tuple[Unsynced, ...] = ()
        back: tuple[bytes, ...] = ()
        parts: list[PartFound] = []
        before = 0
        try:
            session = self._session(number, used=batch.used)
            before = session.written_bytes
            removed = tuple(temp for temp in batch.remove if _remove(session, temp))
            dropped.extend(drop for drop in batch.drops if _remove(session, drop.path, drop))
            _remove_folders(session, dropped)
            used = batch.used and batch.mounts
            if batch.fleet:
                if used:
                    check_mounted(session)
                self._leave_status(session, batch.fleet, file_mode(batch.root))
            meter = _Meter(self, batch.db)
            sender = Sender(session, batch.root, meter, meter.synced, used=used)
            set_folder_modes(session, batch.modes)
            sender.send_all(batch.jobs, results)
            if batch.parts and used:
                check_mounted(session)
            look_all(session, batch.parts, parts)
            back = tuple(item for item in batch.moved if session.stat(item) is not None)
            synced, unsound = _synced(session, batch.syncs)
            _check(session, batch.checks, checked, used=used)
        except (LinkError, BlockedError) as caught:
            error = caught
        except (TransientError, DeniedError) as caught:
            results += [Failed(job, caught) for job in without_result(batch.jobs, results)]
        except ConfigError as caught:  # in ~/.ssh/config
            error = BlockedError("connect", b"", str(caught), "fix it, then: rla-agent replicate retry")
        except RlaError as caught:  # an error of the target that nobody expected
            error = LinkError("connect", b"", str(caught), "retrying")
        except Exception as caught:  # the top of a thread: it is reported and retried
            log.exception("a sender failed")
            error = LinkError("send", b"", f"internal error: {caught!r}", "please report it with worker.log")
        written = session.written_bytes - before if session is not None else 0
        can_sync = session is not None and session.syncs
        return BatchOutcome(
            *(number, batch, tuple(results), removed, error, written),
            *(tuple(dropped), synced, tuple(checked), back, can_sync, unsound),
            parts=tuple(parts),
        )

    def _session(self, number: int, *, used: bool) -> TargetSession:
        if self._renewed.get(number, 0) != self._renewals:
            self._drop(number)
        if number not in self._sessions:
            self._renewed[number] = self._renewals
            with ExitStack() as refused:
                session = self.open_session()
                refused.callback(session.close)
                if used:
                    check_mounted(session)
                refused.pop_all()
            self._sessions[number] = session
            self.begun_at = time.monotonic()
        return self._sessions[number]

    def _leave_status(self, session: TargetSession, content: bytes, mode: int) -> None:
        try:
            fleet.leave_status(session, self.host, self.machine, content, mode)
            if not self._old_status_gone:
                fleet.remove_old_status(session, self.host)
                self._old_status_gone = True
        except LinkError:
            raise
        except TargetError as error:  # files matter more; the next status may succeed
            log.debug("no status file on the master: %s", error)

    def passed(self, confirmed: Confirmed | None, count: int) -> None:
        """Count bytes that are on the master; waits where there is a rate limit.

        Raises:
            LinkError: the link is being closed.
        """
        if confirmed is not None:
            self.outcomes.put(confirmed)
            self.wake()
        self._bucket.take(count, self._stop)
        self.passed_bytes += count  # written by several threads without a lock; for an estimate
        if self._stop.is_set():
            raise LinkError("send", b"", "stopping")

    def _drop(self, number: int, *, broken: bool = False) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self.ended_on, self.ended_at = time.time(), time.monotonic()
            if broken:
                self.broken_at = self.ended_at  # others do this, too: store no value that was read before
            session.close()


def _synced(
    session: TargetSession, files: Sequence[Unsynced]
) -> tuple[tuple[Unsynced, ...], tuple[Unsynced, ...]]:
    """Sync files on the master; those that were synced, and those for which the disk gave an error."""
    done = session.sync([file.path for file in files]) if files else []
    pairs = list(zip(files, done, strict=True))
    return tuple(file for file, is_synced in pairs if is_synced), tuple(
        file for file, is_synced in pairs if is_synced is None
    )


def _check(
    session: TargetSession, files: Sequence[Unconfirmed], checked: list[Checked], *, used: bool
) -> None:
    """Check files; where some are missing the whole root may be, and then no result counts."""
    found = check_all(session, files) if files else []
    if used and any(one.what == "missing" for one in found):
        check_mounted(session)
    checked += found


class _Meter:
    """Turns a sender's progress into rate limiting and, occasionally, an update for the ledger."""

    def __init__(self, link: SenderThreads, db: int) -> None:
        self._link = link
        self._db = db
        self._job: SendJob | None = None
        self._seen = self._noted = self._sure = 0

    def synced(self, job: SendJob, synced: int) -> None:
        """Note how much of a job's file is on the master's disk."""
        self._take(job)
        self._sure = synced

    def _take(self, job: SendJob) -> None:
        if job is not self._job:
            self._job, self._seen, self._noted, self._sure = job, job.start, job.start, job.sure

    def __call__(self, job: SendJob, confirmed: int) -> None:
        self._take(job)
        count, self._seen = confirmed - self._seen, confirmed
        note = None
        if confirmed - self._noted >= NOTE_BYTES or confirmed < self._noted:
            self._noted = confirmed
            note = Confirmed(self._db, job, confirmed, min(self._sure, confirmed))
        self._link.passed(note, max(0, count))


def _remove(session: TargetSession, path: bytes, drop: Drop | None = None) -> bool:
    """Delete a name; False: the master refuses, which must not stop other files.

    `drop`: only an unchanged file; any other is somebody's, and stays.
    """
    try:
        if drop is None or same(session.stat(path), drop.left) or _is_same_mark(session, drop):
            session.remove(path)
    except LinkError:
        raise
    except TargetError as error:
        log.debug("not removed: %s", error)
        return False
    return True


def _is_same_mark(session: TargetSession, drop: Drop) -> bool:
    """Whether a `whole.json` is the one that is to be deleted, with another time.

    If it stayed, readers there would miss the shards that are deleted after it.
    """
    if drop.key.name != sharded_order.MARK or drop.sha256 is None or session.stat(drop.path) is None:
        return False
    content = session.read(drop.path, 0, drop.left.size + 1)
    return hashlib.sha256(content).digest() == drop.sha256


def _remove_folders(session: TargetSession, dropped: Sequence[Drop]) -> None:
    """Delete empty folders of sharded checkpoints."""
    found = [sharded_order.split(CHECKPOINT, drop.path) for drop in dropped]
    for folder in dict.fromkeys(sharded[0] for sharded in found if sharded is not None):
        for path in (sharded_order.own_folder(folder), folder):
            try:
                session.remove_folder(path)
            except LinkError:
                raise
            except TargetError as error:
                log.debug("not removed: %s", error)  # it is not empty


def health_after(health: Health, error: TargetError, now: float) -> Health:
    """A target's health after its link broke."""
    jitter = random.random()  # noqa: S311 - jitter
    if isinstance(error, LoginError):
        return health.refused(now, jitter, str(error), error.hint)
    if isinstance(error, (HostKeyError, BlockedError)):
        return health.stopped(now, jitter, str(error), error.hint)
    return health.failed(now, jitter, str(error), error.hint)
