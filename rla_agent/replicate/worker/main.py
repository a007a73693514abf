"""The replicator's process: `python -m rla_agent.replicate.worker.main --state DIR`.

One thread decides: it reads the registry, takes hints, looks at files a slice at a time, hands due
work to the links' threads and writes the ledger. It ends on SIGTERM, SIGINT, or when its parent is
gone (`--parent PID`). One worker per state folder: a lock file is held for life. It talks to nobody
but the targets and never unpickles.

Configurations are read beside that thread (`config_reader`): one on a file server that hangs holds up its own
database, and one that was read before continues as it said.
"""

from __future__ import annotations

import argparse
import json
import logging
import logging.handlers
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from rla_agent.model.log_format import LOG_FORMAT, OneLine
from rla_agent.replicate import report, settings
from rla_agent.replicate.ledger import Ledger, ledger_path
from rla_agent.replicate.prune import Kept, Retention
from rla_agent.replicate.settings import Entry, Hint, Listener
from rla_agent.replicate.worker.database import Database
from rla_agent.replicate.worker.link import BatchOutcome, Confirmed, Link
from rla_agent.replicate.worker.source import Committed, Scanner
from rla_agent.store.config_reader import Changed, ConfigReader, Reading
from rla_client.contract.errors import AgentRunningError, ConfigError, RlaError
from rla_client.contract.process.locks import try_lock
from rla_client.contract.process.syscalls import process_descriptor

if TYPE_CHECKING:
    from rla_agent.replicate.worker.plan import Health
    from rla_client.config.schema import Config

LOOK_S: Final = 0.02  # a slice of looking at files
BUSY_TICK_S: Final = 0.25
IDLE_TICK_S: Final = 1.0
REGISTRY_S: Final = 1.0
SETTLE_S: Final = 1.0
NOTE_S: Final = 1.0  # between two snapshots for status
QUIET_S: Final = 60.0  # between two warnings about a target: one that comes and goes would fill the log
WATCH_S: Final = 5.0  # between two looks at which folders are watched
RATE_WINDOW_S: Final = 10.0
ESTIMATE_AFTER_S: Final = 10.0  # of sending without a pause: before, no time is told
ESTIMATE_WINDOW_S: Final = 60.0
DEBOUNCE_MS: Final = 400
STEP_MS: Final = 200
REST_S: Final = 60.0  # after watchfiles failed: a name that is not UTF-8, no watches left
JOIN_S: Final = 2.0
MAX_PATHS: Final = 10_000  # reported and not yet taken; beyond, the look at everything finds them
AGENT_LOG: Final = "agent.log"  # of places.Places.log
WORKER_LOG: Final = "worker.log"
LOG_BYTES: Final = 4 << 20  # then one before it is kept
log = logging.getLogger("rla_agent.replicate")
_outages = logging.getLogger("rla_agent.replicate.worker.link")  # what it says is in the agent's log, too,
_losses = logging.getLogger("rla_agent.replicate.worker.confirm")  # as is what this says


class Outage:
    """Tells of a target that goes away and comes back, once each, and of another fault that holds it up."""

    def __init__(self, target: str) -> None:
        """`target`: its name, see `settings.Target`."""
        self._name = report.shown_target(target)
        self._away: tuple[bool, str] | None = None  # blocked, fix: what tells faults apart
        self._quiet_until = 0.0

    def look(self, health: Health, now: float, *, came_through: bool) -> None:
        """Say it when the target went away or came back; `came_through`: it has just done what was asked."""
        away = (health.blocked, health.fix) if health.reason else None
        if away is not None and away != self._away and now >= self._quiet_until:
            fix = f"; {health.fix}" if health.fix else ""
            _outages.warning("replication to %s is held up: %s%s", self._name, health.reason, fix)
            if self._away is not None:  # faults that take turns would fill the log
                self._quiet_until = now + QUIET_S
            self._away = away
        elif self._away is not None and away is None and came_through:
            _outages.info("replication to %s continues", self._name)
            self._away, self._quiet_until = None, now + QUIET_S


class Watch:
    """A thread that reports changed paths below some folders: those of the items that ended last.

    What somebody adds to them goes in a second. A hint and nothing more (docs/adr/0005): live items are
    announced by the agent and looked at each second, and a look at everything comes every minute, so an event
    that is lost costs a minute. Only a few items are watched, because inotify takes a watch for each folder
    and a database has millions.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from the thread, when there is something to take."""
        self._wake = wake
        self._paths: queue.Queue[bytes] = queue.Queue(MAX_PATHS)
        self._folders: tuple[str, ...] = ()
        self._changed = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def set(self, folders: Iterable[str]) -> None:
        """Watch these folders and what is below them, and no others; absolute paths."""
        wanted = tuple(sorted(folders))
        if wanted == self._folders:
            return
        self._folders = wanted
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self._thread.start()

    def take(self) -> list[bytes]:
        """Changed paths, absolute, since the last call."""
        found: dict[bytes, None] = {}
        while True:
            try:
                found[self._paths.get_nowait()] = None
            except queue.Empty:
                return list(found)

    def close(self) -> None:
        """Stop watching."""
        self._stopping = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            folders = [folder for folder in self._folders if os.path.isdir(folder)]
            if not folders:
                self._changed.wait()
                continue
            try:
                self._watch(folders)
            except (OSError, RuntimeError, UnicodeError) as error:
                log.info("watching rests, files are found by looking: %s", error)
                self._changed.wait(REST_S)

    def _watch(self, folders: list[str]) -> None:
        from watchfiles import watch  # noqa: PLC0415 - only once there is something to watch

        for changes in watch(
            *folders,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._changed,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            for _, path in changes:
                try:
                    self._paths.put_nowait(os.fsencode(path))
                except queue.Full:
                    break
            self._wake()


@dataclass
class Served:
    """A database being replicated, and from what it was set up: `changed` as in `Reading`.

    `rates`: (time, bytes written) of late; `busy`: (time, bytes passed) since the senders had nothing to do.
    """

    entry: Entry
    changed: Changed
    database: Database
    target: settings.Target
    outage: Outage
    rates: list[tuple[float, int]] = field(default_factory=list)
    busy: list[tuple[float, int]] = field(default_factory=list)
    quiet_until: float = 0.0
    kept: Kept | None = None


class Worker:
    """The replicator of one state folder."""

    def __init__(self, state: Path, host: str) -> None:
        self._state = state
        self._host = host
        self._private = settings.folder(state)
        self._lock = _take_lock(self._private / "worker.lock")
        self._ledger = Ledger(ledger_path(state))
        self._committed = Committed(state)
        self._listener = Listener(state)
        self._outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._served: dict[tuple[str, str], Served] = {}
        self._problems: dict[str, str] = {}
        self._listed: list[Entry] = []
        self._list_fault = ""
        self._configs = ConfigReader()
        self._watch = Watch(self.wake)
        self._retention = Retention(state)
        self._registry_due = self._note_due = self._settle_due = self._watch_due = 0.0
        self.stopping = False
        self._parent = -1

    def run(self, parent: int | None) -> None:
        """Serve until told to stop, or until the parent is gone."""
        if parent is not None:
            with suppress(OSError):  # older kernels: seen at the next turn
                self._parent = process_descriptor(parent)
        while not self.stopping and (parent is None or os.getppid() == parent):
            now = time.monotonic()
            self._wait(0.0 if self.turn(now) else self.tick(now))

    def turn(self, now: float) -> bool:
        """Do what is due at `now`; True while there is more to look at."""
        if now >= self._registry_due:
            self._registry_due = now + REGISTRY_S
            self._read_registry()
        more = self._step(now)
        if now >= self._note_due:
            self._note_due = now + NOTE_S
            self._note(now)
        self._ledger.commit()  # last: whoever else writes to the ledger must not wait for the next turn
        return more

    def close(self) -> None:
        """Stop sending, keep what is known."""
        self._watch.close()
        for served in self._served.values():
            served.database.close()
        self._take_outcomes(time.monotonic())
        self._ledger.set_meta(report.LIVE_NAME, json.dumps({"at": 0, "pid": 0}))
        self._ledger.close()
        self._committed.close()
        self._listener.close()
        self._lock.close()

    def wake(self) -> None:
        """From any thread or a signal handler: look at once."""
        with suppress(BlockingIOError):
            self._wake_out.send(b"x")

    def _step(self, now: float) -> bool:
        for hint in self._listener.receive():
            self._hint(hint, now)
        self._take_outcomes(now)
        self._follow_changes(now)
        more = False
        for served in self._served.values():
            more = served.database.look(now, LOOK_S) or more
            if not settings.paused(self._state):
                served.database.dispatch(now)
        self._retention.poll(now, [served.kept for served in self._served.values() if served.kept])
        if now >= self._settle_due:
            self._settle_due = now + SETTLE_S
            for served in self._served.values():
                served.database.settle(now)
        return more

    def _follow_changes(self, now: float) -> None:
        for path in self._watch.take():
            for database, inner in self._homes(path):
                database.hint(inner, now)
        if now >= self._watch_due:
            self._watch_due = now + WATCH_S
            databases = [served.database for served in self._served.values()]
            self._watch.set(folder for database in databases for folder in database.last_ended())

    def _take_outcomes(self, now: float) -> None:
        with suppress(queue.Empty):
            while True:
                self._take(self._outcomes.get_nowait(), now)

    def _take(self, outcome: BatchOutcome | Confirmed, now: float) -> None:
        number = outcome.db if isinstance(outcome, Confirmed) else outcome.batch.db
        for served in self._served.values():
            if served.database.number == number:
                if isinstance(outcome, Confirmed):
                    served.database.confirmed(outcome)
                    return
                served.database.outcome(outcome, now)
                served.outage.look(served.database.health, now, came_through=outcome.error is None)
                if outcome.error is not None and now >= served.quiet_until:
                    served.quiet_until = now + QUIET_S
                    log.warning("%s: %s; %s", served.target.name, outcome.error, outcome.error.hint)

    def _hint(self, hint: Hint, now: float) -> None:
        for path, owned in hint.outputs:
            self._committed.hint(path, owned)
            for database, inner in self._homes(path):
                database.hint(inner, now)
        for path in hint.files:
            for database, inner in self._homes(path):
                database.hint(inner, now, whole=True)
        for path in hint.now:
            for database, inner in self._homes(path):
                database.hint_item(inner, now)
        if not (hint.outputs or hint.files or hint.now):
            self._registry_due = self._note_due = 0.0  # somebody acted: read what they left, tell of it
            self.wake()
            for served in self._served.values():
                served.database.look_now()

    def _homes(self, path: bytes) -> list[tuple[Database, bytes]]:
        found = []
        for served in self._served.values():
            root = served.database.scanner.root + b"/"
            if path.startswith(root):
                found.append((served.database, path[len(root) :]))
        return found

    def _read_registry(self) -> None:
        wanted = {(entry.data_root, entry.config): entry for entry in self._entries()}
        for key in [key for key in self._served if key not in wanted]:
            self._served.pop(key).database.close()
        configs = {entry.config for entry in wanted.values()}
        for config in self._problems.keys() - configs:
            del self._problems[config]
        self._configs.look(configs)
        for key, entry in wanted.items():
            found = self._configs.known(entry.config)
            served = self._served.get(key)
            if found is None:
                why = f"{entry.config} cannot be read now: its disk or file server does not answer"
                self._not_replicated(entry, why)
            elif served is None or served.entry != entry or served.changed != found.changed:
                self._serve(entry, found)
        if settings.take_retry(self._state):
            self._ledger.unpark()
            for served in self._served.values():
                served.database.retry()

    def _entries(self) -> list[Entry]:
        """What is replicated; while the list cannot be read, what was. Status looks at it itself."""
        try:
            self._listed, said = settings.entries(self._state), ""
        except settings.UnreadableListError as error:
            said = str(error)
        if said and said != self._list_fault:
            log.warning("%s; what was replicated before still is", said)
        elif self._list_fault and not said:
            log.info("the list of databases can be read again")
        self._list_fault = said
        return self._listed

    def _serve(self, entry: Entry, found: Reading) -> None:
        key = (entry.data_root, entry.config)
        old = self._served.pop(key, None)
        if old is not None:
            old.database.close()
            self._take_outcomes(time.monotonic())
        try:
            if found.config is None:
                raise ConfigError(entry.config, list(found.faults))
            if settings.wanted(entry, found.config):
                self._served[key] = self._open(entry, found.changed, found.config)
            self._problems.pop(entry.config, None)
        except RlaError as error:
            self._not_replicated(entry, str(error))

    def _not_replicated(self, entry: Entry, why: str) -> None:
        if self._problems.get(entry.config) != why:
            log.warning("%s is not replicated: %s", entry.data_root, why)
        self._problems[entry.config] = why

    def _open(self, entry: Entry, changed: Changed, config: Config) -> Served:
        target = settings.target(config, self._private)
        root = os.fsencode(entry.data_root)
        number = self._ledger.database(root, target.name)
        machine = report.fleet_id(self._private, root)
        link = Link(
            target.open, self._outcomes, self.wake, target.connections, target.rate, self._host, machine
        )
        scanner = Scanner(root, settings.scope(entry, config, self._host))
        database = Database(number, scanner, link, self._ledger, self._committed, confirms=target.confirms)
        database.mirror, database.append_every_s = target.retention == "mirror", target.append_every_s
        kept = Kept(entry.data_root, target, config.agent) if config.agent.retention else None
        return Served(entry, changed, database, target, Outage(target.name), kept=kept)

    def tick(self, now: float) -> float:
        """Seconds to the next turn, if nothing wakes the worker; a master that is down costs little."""
        databases = [served.database for served in self._served.values()]
        busy = any(
            database.link.busy
            or (
                database.health.may_try(now)
                and (self._ledger.any_due(database.number) or database.confirmations.waits())
            )
            for database in databases
        )
        return BUSY_TICK_S if busy else IDLE_TICK_S

    def _wait(self, timeout_s: float) -> None:
        waited = [self._listener.fileno(), self._wake_in.fileno()]
        if self._parent >= 0:
            waited.append(self._parent)  # readable when that process has ended
        ready, _, _ = select.select(waited, [], [], timeout_s)
        if self._wake_in.fileno() in ready:
            with suppress(BlockingIOError):
                self._wake_in.recv(4096)

    def _note(self, now: float) -> None:
        databases = [_snapshot(served, now) for served in self._served.values()]
        snapshot = {
            "at": time.time(),
            "pid": os.getpid(),
            "host": self._host,
            "databases": databases,
            "problems": self._problems,
        }
        self._ledger.set_meta(report.LIVE_NAME, json.dumps(snapshot))


def _snapshot(served: Served, now: float) -> dict[str, Any]:
    counters, health = served.database.counters, served.database.health
    unread = served.database.scanner.unread
    served.rates.append((now, counters.written_bytes))
    while len(served.rates) > 2 and now - served.rates[0][0] > RATE_WINDOW_S:  # noqa: PLR2004
        served.rates.pop(0)
    (first, old), (last, new) = served.rates[0], served.rates[-1]
    passed = served.database.link.passed_bytes
    if not served.database.link.busy:
        served.busy.clear()  # an estimate is of an unbroken stretch of sending
    else:
        served.busy.append((now, passed))
        while len(served.busy) > 2 and now - served.busy[0][0] > ESTIMATE_WINDOW_S:  # noqa: PLR2004
            served.busy.pop(0)
    word = "blocked" if health.blocked else "retrying" if health.tries else "ok"
    return {
        "number": served.database.number,
        "health": word,
        "reason": health.reason,
        "fix": health.fix,
        "problem": served.database.problem,
        "unread": [
            {"path": os.fsdecode(path), "reason": why.reason, "fix": why.fix}
            for path, why in islice(unread.items(), report.MAX_PARKED)
        ],
        "unread_folders": len(unread),
        "tries": health.tries,
        "retry_in_s": max(0.0, health.not_before - now),
        "connections": served.database.link.connections,
        "rate_bytes_s": (new - old) / (last - first) if last > first else 0.0,
        "sending_bytes_s": _rate_of(served.busy),
        "last_success": counters.last_success,
        "sent_files": counters.sent_files,
        "sent_bytes": counters.sent_bytes,
        "written_bytes": counters.written_bytes,
        "kept": counters.kept,
        "mended": served.database.confirmations.mended,
    }


def _rate_of(points: list[tuple[float, int]]) -> float:
    """Bytes per second; 0 before there is enough to tell by."""
    if not points or points[-1][0] - points[0][0] < ESTIMATE_AFTER_S:
        return 0.0
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def _take_lock(path: Path) -> IO[str]:
    lock = path.open("a+")
    if not try_lock(lock.fileno()):
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise AgentRunningError(f"replicator, pid {holder}")
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


class _OwnLog(logging.handlers.RotatingFileHandler):
    """`worker.log`, which stdout and stderr lead to as well: they follow when it is put aside."""

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        """Go on in a new file."""
        super().doRollover()
        if self.stream is not None:
            for descriptor in (1, 2):
                os.dup2(self.stream.fileno(), descriptor)


def _log_to(path: Path) -> None:
    """Log to stderr; where that is `worker.log`, it does not grow for ever."""
    handler: logging.Handler = logging.StreamHandler()
    with suppress(OSError):
        if os.path.samestat(os.fstat(2), os.stat(path)):
            handler = _OwnLog(path, maxBytes=LOG_BYTES, backupCount=1)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _log_beside_the_agent(state: Path) -> None:
    """Let outages appear in the agent's own log, which `rla-agent logs` shows; `worker.log` has the details.

    The agent moves that file away when it is long, so it is opened anew wherever it is another one by then.
    """
    handler = logging.handlers.WatchedFileHandler(state / AGENT_LOG, delay=True)
    handler.setFormatter(OneLine(LOG_FORMAT))
    _outages.addHandler(handler)
    _losses.addHandler(handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's entry."""
    parser = argparse.ArgumentParser(prog="rla_agent.replicate.worker.main")
    parser.add_argument("--state", type=Path, required=True, help="the agent's state folder")
    parser.add_argument("--parent", type=int, help="end when this process is gone")
    parser.add_argument("--host", default=socket.gethostname(), help="this machine's name in run.json")
    options = parser.parse_args(arguments)
    _log_to(options.state / "replicate" / WORKER_LOG)
    try:
        worker = Worker(options.state, options.host)
    except RlaError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the process's only output
        return 3
    _log_beside_the_agent(options.state)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop(worker))
    try:
        worker.run(options.parent)
    finally:
        worker.close()
    return 0


def _stop(worker: Worker) -> None:
    worker.stopping = True
    worker.wake()


if __name__ == "__main__":
    sys.exit(main())
