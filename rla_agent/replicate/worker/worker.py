"""Replicator of one state folder.

One thread decides: it reads the registry, takes hints, scans files a slice at a time, hands due work to the
links' threads and writes the ledger. One worker per state folder: a lock file is held for life. It connects
only to the targets and never unpickles.

Configurations are read in another thread (`config_reader`): one on a file server that hangs delays only its
own database, and one that was read before stays in force.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import queue
import select
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from rla_agent.replicate import command_markers, fleet, registry, replicated_scope, status, target_config
from rla_agent.replicate.hints import FileHint, Listener
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.prune.automatic_pruning import AutomaticPruning, RetainedDatabase
from rla_agent.replicate.registry import RegisteredDatabase
from rla_agent.replicate.worker.batch import BatchOutcome, Confirmed
from rla_agent.replicate.worker.committed import Committed
from rla_agent.replicate.worker.database import TargetDatabase
from rla_agent.replicate.worker.file_watch import FileWatch
from rla_agent.replicate.worker.outage_log import QUIET_S, Outage, outage_log
from rla_agent.replicate.worker.scan import Scanner
from rla_agent.replicate.worker.sender_threads import SenderThreads
from rla_agent.replicate.worker.served_database import ServedDatabase, database_snapshot
from rla_agent.store.config_reader import Changed, ConfigReader, Reading
from rla_client.contract.errors import AgentRunningError, ConfigError, RlaError
from rla_client.contract.process.locks import try_lock
from rla_client.contract.process.syscalls import process_descriptor

if TYPE_CHECKING:
    from rla_client.config.schema import Config


LOOK_S: Final = 0.02  # a slice of scanning files
BUSY_TICK_S: Final = 0.25
IDLE_TICK_S: Final = 1.0
REGISTRY_S: Final = 1.0
SETTLE_S: Final = 1.0
NOTE_S: Final = 1.0  # between two snapshots for status
WATCH_S: Final = 5.0  # between two choices of watched folders
log = logging.getLogger("rla_agent.replicate")


class Replicator:
    """The replicator of one state folder."""

    def __init__(self, state: Path, host: str) -> None:
        self._state = state
        self._host = host
        self._private = registry.folder(state)
        self._lock = _take_lock(self._private / "worker.lock")
        self._ledger = Ledger(ledger_path(state))
        if self._ledger.put_aside:
            outage_log.error(
                "the ledger was damaged and is now %s; all files are compared with the master again",
                self._ledger.put_aside,
            )
        self._committed = Committed(state)
        self._listener = Listener(state)
        self._outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._served: dict[tuple[str, str], ServedDatabase] = {}
        self._problems: dict[str, str] = {}
        self._listed: list[RegisteredDatabase] = []
        self._list_fault = ""
        self._configs = ConfigReader()
        self._watch = FileWatch(self.wake)
        self._retention = AutomaticPruning(state)
        self._registry_due = self._note_due = self._settle_due = self._watch_due = 0.0
        self.stopping = False
        self._parent = -1

    def run(self, parent: int | None) -> None:
        """Serve until stopped, or until the parent is gone."""
        if parent is not None:
            with suppress(OSError):  # older kernels: seen at the next turn
                self._parent = process_descriptor(parent)
        while not self.stopping and (parent is None or os.getppid() == parent):
            now = time.monotonic()
            self._wait(0.0 if self.turn(now) else self.tick(now))

    def turn(self, now: float) -> bool:
        """Do the work that is due at `now`; True while there is more to scan."""
        if now >= self._registry_due:
            self._registry_due = now + REGISTRY_S
            self._read_registry()
        more = self._step(now)
        if now >= self._note_due:
            self._note_due = now + NOTE_S
            self._note(now)
        self._ledger.commit()  # last: other writers of the ledger must not wait for the next turn
        return more

    def close(self) -> None:
        """Stop sending; the ledger keeps the state."""
        self._watch.close()
        for served in self._served.values():
            served.database.close()
        self._take_outcomes(time.monotonic())
        self._ledger.set_meta(status.LIVE_NAME, json.dumps({"at": 0, "pid": 0}))
        self._ledger.close()
        self._committed.close()
        self._listener.close()
        self._lock.close()

    def wake(self) -> None:
        """Wake the worker at once, from any thread or a signal handler."""
        with suppress(BlockingIOError):
            self._wake_out.send(b"x")

    def _step(self, now: float) -> bool:
        for hint in self._listener.receive():
            self._hint(hint, now)
        self._take_outcomes(now)
        self._follow_changes(now)
        more = False
        for served in self._served.values():
            more = served.database.changes.look(now, LOOK_S) or more
            if not command_markers.paused(self._state):
                served.database.dispatch(now)
        self._retention.poll(now, [served.kept for served in self._served.values() if served.kept])
        if now >= self._settle_due:
            self._settle_due = now + SETTLE_S
            for served in self._served.values():
                served.database.write_checksums(now)
        return more

    def _follow_changes(self, now: float) -> None:
        for path in self._watch.take():
            for database, inner in self._homes(path):
                database.changes.hint(inner, now)
        if now >= self._watch_due:
            self._watch_due = now + WATCH_S
            databases = [served.database for served in self._served.values()]
            self._watch.set(
                folder for database in databases for folder in database.changes.ended.last_ended()
            )

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

    def _hint(self, hint: FileHint, now: float) -> None:
        for path, owned in hint.outputs:
            self._committed.hint(path, owned)
            for database, inner in self._homes(path):
                database.changes.hint(inner, now)
        for path in hint.files:
            for database, inner in self._homes(path):
                database.changes.hint(inner, now, whole=True)
        for path in hint.now:
            for database, inner in self._homes(path):
                database.changes.hint_item(inner, now)
        if not (hint.outputs or hint.files or hint.now):
            self._registry_due = self._note_due = 0.0  # somebody acted: read the markers, and report that
            self.wake()
            for served in self._served.values():
                served.database.look_now()

    def _homes(self, path: bytes) -> list[tuple[TargetDatabase, bytes]]:
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
        if command_markers.take_retry(self._state):
            self._ledger.unpark()
            for served in self._served.values():
                served.database.retry()

    def _entries(self) -> list[RegisteredDatabase]:
        """The replicated databases; while the list cannot be read, the former ones."""
        try:
            self._listed, said = registry.entries(self._state), ""
        except registry.UnreadableListError as error:
            said = str(error)
        if said and said != self._list_fault:
            log.warning("%s; what was replicated before still is", said)
        elif self._list_fault and not said:
            log.info("the list of databases can be read again")
        self._list_fault = said
        return self._listed

    def _serve(self, entry: RegisteredDatabase, found: Reading) -> None:
        key = (entry.data_root, entry.config)
        old = self._served.pop(key, None)
        if old is not None:
            old.database.close()
            self._take_outcomes(time.monotonic())
        try:
            if found.config is None:
                raise ConfigError(entry.config, list(found.faults))
            if replicated_scope.wanted(entry, found.config):
                self._served[key] = self._open(entry, found.changed, found.config)
            self._problems.pop(entry.config, None)
        except RlaError as error:
            self._not_replicated(entry, str(error))

    def _not_replicated(self, entry: RegisteredDatabase, why: str) -> None:
        if self._problems.get(entry.config) != why:
            log.warning("%s is not replicated: %s", entry.data_root, why)
        self._problems[entry.config] = why

    def _open(self, entry: RegisteredDatabase, changed: Changed, config: Config) -> ServedDatabase:
        target = target_config.target(config, self._private)
        root = os.fsencode(entry.data_root)
        number = self._ledger.database(root, target.name)
        machine = fleet.fleet_id(self._private, root)
        link = SenderThreads(
            target.open, self._outcomes, self.wake, target.connections, target.rate, self._host, machine
        )
        scanner = Scanner(root, replicated_scope.scope(entry, config, self._host), making=True)
        database = TargetDatabase(
            *(number, scanner, link, self._ledger, self._committed),
            mirror=target.retention == "mirror",
            append_every_s=target.append_every_s,
            confirms=target.confirms,
            target=target.name,
        )
        kept = RetainedDatabase(entry.data_root, target, config.agent) if config.agent.retention else None
        return ServedDatabase(entry, changed, database, target, Outage(target.name), kept=kept)

    def tick(self, now: float) -> float:
        """Seconds to the next turn, if nothing wakes the worker; few turns while a master is down."""
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
        databases = [database_snapshot(served, now) for served in self._served.values()]
        snapshot = {
            "at": time.time(),
            "pid": os.getpid(),
            "host": self._host,
            "databases": databases,
            "problems": self._problems,
        }
        self._ledger.set_meta(status.LIVE_NAME, json.dumps(snapshot))


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
