"""The connections to one target: a few threads, each with a session of its own, and the target's health.

The worker's thread owns `Health` and `Leftovers` and hands out batches; a thread sends one batch at a
time and puts an `BatchOutcome` on the shared queue. A session is opened at the first batch and closed after
`IDLE_CLOSE_S` without one.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from rla_agent.replicate import report
from rla_agent.replicate.backend.target import (
    BlockedError,
    DeniedError,
    HostKeyError,
    LinkError,
    LoginError,
    MissingError,
    RemoteStat,
    Session,
    TargetError,
    TransientError,
    same,
)
from rla_agent.replicate.ledger import Drop, Key, Ledger
from rla_agent.replicate.worker.plan import Health, Whole
from rla_agent.replicate.worker.send import Failed, FolderMode, Job, Result, Sender
from rla_client.contract.errors import ConfigError, RlaError
from rla_client.contract.files import file_mode

IDLE_CLOSE_S: Final = 60.0
JOIN_S: Final = 5.0
RESUME_BYTES: Final = 1 << 20  # a temp file with less is not worth going on with
MAX_REMOVED: Final = 1000  # temp names that one batch clears away
SETTLED_S: Final = 60.0  # until a server has done what a broken link had sent
NOTE_BYTES: Final = 1 << 20  # confirmed bytes of a large file between two notes in the ledger
_UNMOUNTED: Final = "mount its disk; or, to go on in an empty one, put a file into it"
log = logging.getLogger("rla_agent.replicate")


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs of one database.

    `root`: descriptor of its data root; `remove`: temp names to clear away; `fleet`: this machine's status
    file; `modes`: of folders; `drops`: files to delete; `used`: the master has items of this database.
    """

    db: int
    root: int
    jobs: tuple[Job, ...]
    remove: tuple[bytes, ...] = ()
    fleet: bytes = b""
    modes: tuple[FolderMode, ...] = ()
    drops: tuple[Drop, ...] = ()
    used: bool = False


@dataclass(frozen=True, slots=True)
class Confirmed:
    """So much of a large file is on the master; for the ledger, so that a later try continues there."""

    db: int
    job: Job
    confirmed: int


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of a batch. `error`: the link broke; jobs without a result are open.

    `dropped`: those of its drops that are no longer there, or are somebody else's file by now.
    """

    sender: int
    batch: Batch
    results: tuple[Result, ...]
    removed: tuple[bytes, ...] = ()
    error: TargetError | None = None
    written_bytes: int = 0
    dropped: tuple[Drop, ...] = ()

    def open_jobs(self) -> list[Job]:
        """Jobs of a broken batch of which nobody knows what became."""
        return _without_result(self.batch.jobs, self.results)


class TokenBucket:
    """At most `rate` bytes per second over all senders; 0: no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, count: int, stop: threading.Event) -> None:
        """Wait until `count` more bytes may have gone."""
        if self._rate <= 0:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            wait = self._free_at - now
        stop.wait(wait)


@dataclass
class Link:
    """Threads that send to one target.

    Attributes:
        open_session: connects.
        outcomes: where results go; shared with other links.
        wake: called after each result.
        connections: number of threads.
        rate: bytes per second over all of them, 0 for no limit.
        host, machine: this machine's name and `report.fleet_id`, for its status file on the master.
    """

    open_session: Callable[[], Session]
    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed]
    wake: Callable[[], None]
    connections: int
    rate: int = 0
    host: str = ""
    machine: str = ""
    passed_bytes: int = 0
    busy: set[int] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _inboxes: list[queue.SimpleQueue[Batch | None]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _sessions: dict[int, Session] = field(default_factory=dict)
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

    def give(self, number: int, batch: Batch) -> None:
        """Let a sender send a batch."""
        self.busy.add(number)
        self._inboxes[number].put(batch)

    def done(self, outcome: BatchOutcome) -> None:
        """The sender of an outcome is free again."""
        self.busy.discard(outcome.sender)

    def close(self) -> None:
        """Stop the threads; what is on its way is dropped, and continues at the next start."""
        self._stop.set()
        for inbox in self._inboxes:
            inbox.put(None)
        for session in list(self._sessions.values()):
            session.close()
        for thread in self._threads:
            thread.join(JOIN_S)

    def _run(self, number: int) -> None:
        while True:
            try:
                batch = self._inboxes[number].get(timeout=IDLE_CLOSE_S)
            except queue.Empty:
                self._drop(number)
                continue
            if batch is None or self._stop.is_set():
                self._drop(number)
                return
            self.outcomes.put(self._send(number, batch))
            self.wake()

    def _send(self, number: int, batch: Batch) -> BatchOutcome:
        results: list[Result] = []
        session: Session | None = None
        error: TargetError | None = None
        removed: tuple[bytes, ...] = ()
        dropped: list[Drop] = []
        before = 0
        try:
            session = self._session(number, used=batch.used)
            before = session.written_bytes
            removed = tuple(temp for temp in batch.remove if _remove(session, temp))
            dropped.extend(drop for drop in batch.drops if _remove(session, drop.path, drop.left))
            if batch.fleet:
                self._leave_status(session, batch.fleet, file_mode(batch.root))
            sender = Sender(session, batch.root, _Meter(self, batch.db))
            sender.set_folder_modes(batch.modes)
            sender.send_all(batch.jobs, results)
        except (LinkError, BlockedError) as caught:
            error = caught
        except (TransientError, DeniedError) as caught:
            results += [Failed(job, caught) for job in _without_result(batch.jobs, results)]
        except ConfigError as caught:  # in ~/.ssh/config
            error = BlockedError("connect", b"", str(caught), "mend it, then: rla-agent replicate retry")
        except RlaError as caught:  # of the target, where nobody expected it
            error = LinkError("connect", b"", str(caught), "it is tried again")
        except Exception as caught:  # the top of a thread: it is told, and tried again
            log.exception("a sender failed")
            error = LinkError("send", b"", f"internal error: {caught!r}", "please report it with worker.log")
        written = session.written_bytes - before if session is not None else 0
        if error is not None:
            self._drop(number)
        return BatchOutcome(number, batch, tuple(results), removed, error, written, tuple(dropped))

    def _session(self, number: int, *, used: bool) -> Session:
        if number not in self._sessions:
            with ExitStack() as refused:
                session = self.open_session()
                refused.callback(session.close)
                if used:
                    _check_mounted(session)
                refused.pop_all()
            self._sessions[number] = session
        return self._sessions[number]

    def _leave_status(self, session: Session, content: bytes, mode: int) -> None:
        try:
            report.leave_status(session, self.host, self.machine, content, mode)
            if not self._old_status_gone:
                report.remove_old_status(session, self.host)
                self._old_status_gone = True
        except LinkError:
            raise
        except TargetError as error:  # files matter more; the next one may go through
            log.debug("no status file on the master: %s", error)

    def passed(self, confirmed: Confirmed | None, count: int) -> None:
        """`count` more bytes are on the master; waits where there is a rate limit.

        Raises:
            LinkError: the link is being closed.
        """
        if confirmed is not None:
            self.outcomes.put(confirmed)
            self.wake()
        self._bucket.take(count, self._stop)
        self.passed_bytes += count  # of several threads; for an estimate
        if self._stop.is_set():
            raise LinkError("send", b"", "stopping")

    def _drop(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            session.close()


def _check_mounted(session: Session) -> None:
    """See that a root to which files were sent holds something; one that may not be listed says nothing.

    Raises:
        LinkError: it is empty, or that cannot be found out now.
    """
    try:
        found = session.listing(b"")
    except DeniedError:
        return
    except (TransientError, MissingError) as error:
        raise LinkError("look at", b"", str(error)) from error
    if not found:
        raise LinkError("look at", b"", "it is empty, though files were sent there", _UNMOUNTED)


class _Meter:
    """Turns a sender's progress into rate limiting and, now and then, a note for the ledger."""

    def __init__(self, link: Link, db: int) -> None:
        self._link = link
        self._db = db
        self._job: Job | None = None
        self._seen = self._noted = 0

    def __call__(self, job: Job, confirmed: int) -> None:
        if job is not self._job:
            self._job, self._seen, self._noted = job, job.start, job.start
        count, self._seen = confirmed - self._seen, confirmed
        note = None
        if confirmed - self._noted >= NOTE_BYTES:
            self._noted = confirmed
            note = Confirmed(self._db, job, confirmed)
        self._link.passed(note, max(0, count))


def _remove(session: Session, path: bytes, left: RemoteStat | None = None) -> bool:
    """Clear a name away; False: the master refuses, which is no other file's fault.

    `left`: only a file that is as it was left; anything else is somebody's, and stays.
    """
    try:
        if left is None or same(session.stat(path), left):
            session.remove(path)
    except LinkError:
        raise
    except TargetError as error:
        log.debug("not removed: %s", error)
        return False
    return True


def _without_result(jobs: Sequence[Job], results: Sequence[Result]) -> list[Job]:
    answered = {id(result.job.due) for result in results}
    return [job for job in jobs if id(job.due) not in answered]


def health_after(health: Health, error: TargetError, now: float) -> Health:
    """A target's health after its link broke."""
    jitter = random.random()  # noqa: S311 - jitter
    if isinstance(error, LoginError):
        return health.refused(now, jitter, str(error), error.hint)
    if isinstance(error, (HostKeyError, BlockedError)):
        return health.stopped(now, jitter, str(error), error.hint)
    return health.failed(now, jitter, str(error), error.hint)


class Leftovers:
    """Temp files that tries left on the master: large ones are continued, the others are to be cleared away.

    A server may still do what a link had sent before it broke, or before its worker was killed: so what these
    left is cleared away once more `SETTLED_S` later.

    Belongs to the worker's thread. `orphans`: temp names to clear away.
    """

    def __init__(self, ledger: Ledger, number: int) -> None:
        """`number`: of the database in the ledger."""
        self._ledger, self._number = ledger, number
        temps = sorted(ledger.temps(number), key=lambda temp: temp.acked)
        large = [temp for temp in temps if temp.acked >= RESUME_BYTES and ledger.waits(temp.key)]
        self._partial = {temp.key: temp for temp in large}
        kept = {temp.temp for temp in self._partial.values()}
        self.orphans = [temp.temp for temp in temps if temp.temp not in kept]
        self._unsettled = set(self.orphans)
        self._again: deque[tuple[float, bytes]] = deque()  # from when on; a temp that was cleared away
        self._progress: dict[Key, int] = {}

    def take_orphans(self, now: float) -> tuple[bytes, ...]:
        """Some of the orphans, for a batch."""
        while self._again and self._again[0][0] <= now:
            self.orphans.append(self._again.popleft()[1])
        taken, self.orphans = self.orphans[:MAX_REMOVED], self.orphans[MAX_REMOVED:]
        return tuple(taken)

    def cleared(self, temps: Sequence[bytes], now: float) -> list[bytes]:
        """Of temps that were cleared away, those that cannot come back."""
        unsettled = self._unsettled.intersection(temps)
        self._unsettled -= unsettled
        self._again += [(now + SETTLED_S, temp) for temp in unsettled]
        return [temp for temp in temps if temp not in unsettled]

    def resumed(self, job: Job) -> Job:
        """The job, continuing what an earlier try left where it holds the same version."""
        partial = self._partial.pop(job.due.key, None)
        if partial is None:
            return job
        if isinstance(job.action, Whole) and partial.local == job.local and not job.action.cut:
            return replace(job, temp=partial.temp, start=partial.acked)
        self.orphans.append(partial.temp)
        return job

    def confirmed(self, note: Confirmed) -> None:
        """So much of a job's file is on the master."""
        self._ledger.temp_progress(self._number, note.job.temp, note.confirmed)
        self._progress[note.job.due.key] = note.confirmed

    def keep(self, job: Job) -> None:
        """The link broke under a job: continue it later where enough has arrived."""
        confirmed = self._progress.pop(job.due.key, job.start)
        for temp in self._ledger.temps(self._number) if confirmed >= RESUME_BYTES else ():
            if temp.temp == job.temp:
                self._partial[job.due.key] = temp
                return
        if job.uses_temp:
            self.orphans.append(job.temp)
            self._unsettled.add(job.temp)

    def give_up(self, key: Key) -> None:
        """Nobody continues what an earlier try left of a file."""
        partial = self._partial.pop(key, None)
        if partial is not None:
            self.orphans.append(partial.temp)

    def sent(self, key: Key) -> None:
        """All of a file is on the master."""
        self._progress.pop(key, None)
        self.give_up(key)
