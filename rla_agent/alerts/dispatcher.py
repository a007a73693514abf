"""The dispatcher: a thread that turns what happened into alerts, and has them sent.

It looks each LOOK_S at what is durable: run states in agent.db (so an alert tells of nothing that a
crash could undo, and one that a crash interrupted is seen again), firings of metric rules there,
free space, replication. What it finds goes into alerts.db in one transaction, then out of agent.db.

Sending never happens here: each channel has one courier thread at a time, so that a server that
hangs holds up its own channel and nothing else. A failed try comes again after RETRY_FIRST_S, twice
that, … up to RETRY_MOST_S, for GIVE_UP_S; the moment is stored, so a restart neither loses a message
nor hurries. A message is marked as sent after the other side accepted it: a kill in between sends
it again, with the same Message-ID or Idempotency-Key.

In alerts.db, which this thread alone uses, an event has a key, so that one that is seen again after a restart
gives no second alert. A delivery is one alert by one channel; it stays until it was sent or given up. `runs`
holds the last state of each run that was seen, `limits` until when a rule tells no more of a run, `levels`
which conditions of the machine hold now.

Rules of the machine look at free space in lanes (rla_agent/outputs/data_roots.py), as `statvfs` on a server
that hangs does not return, and at whether replication has stopped, by its ledger.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import math
import os
import queue
import random
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rla_agent.alerts.channels import Route, SendError, send
from rla_agent.alerts.rules import Alert, Rule, RuleSet, of_machine, of_metric, of_run
from rla_agent.outputs.data_roots import Disk, Lanes, disk_of
from rla_agent.replicate.report import replication_status, stopped
from rla_agent.store.database import (
    AgentDatabase,
    NewerFormatError,
    connect,
    grow_wal,
    migrate,
    open_or_replace,
    transaction,
)
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening

LOOK_S = 1.0
REOPEN_S = 10.0  # after a fault of alerts.db or agent.db, or of ours
PASSING = ("full", "locked")  # in what SQLite says of faults that an open database gets over
SWEEP_S = 3600.0
SWEEP_AFTER = 10_000  # events: a metric that flaps gives some hundred a second
RETRY_FIRST_S = 2.0
RETRY_MOST_S = 900.0
GIVE_UP_S = 86400.0
MERGE_FROM = 5  # more than so many alerts that wait for one channel go in one message
MOST_MERGED = 100
CLOCK_SLACK_S = 60.0
UNREAD_KEPT_S = 3600.0  # for a configuration that cannot be read: each look takes all runs since then
RECENT_SHOWN = 20
DISK_LOOK_S = 10.0
REPLICATION_LOOK_S = 10.0
REARM = 1.1  # a disk is well again when it has so much more than the limit
KEPT_S = 7 * 86400.0  # of events, for `alerts show` and against telling them twice
KEPT_RUNS_S = 60 * 86400.0
MAX_EVENTS = 20_000
MAX_WAITING = 5000  # deliveries; beyond, the oldest are given up
WAITING, SENT, GIVEN_UP = 0, 1, 2

_log = logging.getLogger("rla_agent.alerts")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alerts(key TEXT PRIMARY KEY, at REAL NOT NULL, data TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries(
  id INTEGER PRIMARY KEY, alert TEXT NOT NULL, config TEXT NOT NULL, channel TEXT NOT NULL,
  state INT NOT NULL DEFAULT 0, tries INT NOT NULL DEFAULT 0, next_at REAL NOT NULL, made REAL NOT NULL,
  done REAL, error TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS deliveries_state ON deliveries(state, next_at);
CREATE TABLE IF NOT EXISTS runs(run TEXT PRIMARY KEY, mark TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS limits(
  rule TEXT NOT NULL, run TEXT NOT NULL, until REAL NOT NULL, held INT NOT NULL, alert TEXT NOT NULL,
  PRIMARY KEY(rule, run)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS levels(name TEXT PRIMARY KEY) WITHOUT ROWID;
"""
STEPS = (_SCHEMA,)  # to the newest version, in order; a change is a new one at the end


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of one message; `given_up`: the last try failed."""

    deliveries: list[Delivery]
    error: str = ""
    retry_after_s: float | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class _Report:
    """What a courier reports.

    Attributes:
        key: configuration and name of its channel.
        file: of alerts.db that the deliveries are numbered in.
        outcomes: of its messages.
    """

    key: tuple[str, str]
    file: int
    outcomes: list[_Outcome]


class Dispatcher(threading.Thread):
    """See above.

    Args:
        places: of the agent.
        rule_set: the rules and channels.
        live: gives (stream name, opening) of each stream whose writer lives.
        since: Unix seconds; runs that changed before are not looked at where there is no alerts.db yet.
    """

    def __init__(
        self, places: Places, rule_set: RuleSet, live: Callable[[], list[tuple[str, Opening]]], since: float
    ) -> None:
        super().__init__(name="alerts", daemon=True)
        self.waiting = 0  # deliveries
        self.view: dict[str, Any] = {"channels": [], "recent": []}
        self.fault = ""
        self._places = places
        self._rule_set = rule_set
        self._live = live
        self._since = since
        self._host = socket.gethostname() or "localhost"
        self._disks = Disks()
        self._state_device = os.stat(places.state).st_dev
        self._stopped: dict[str, str] = {}  # what of replication has stopped → details
        self._next_replication = 0.0
        self._couriers: dict[tuple[str, str], threading.Thread] = {}
        self._reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
        self._to_note: list[_Report] = []  # taken from there; alerts.db does not have them yet
        self._file = 0  # counts the files that were alerts.db
        self._identity: tuple[int, int] | None = None  # of that file
        self._wake = threading.Event()
        self._stop_at: float | None = None
        self._next_sweep = 0.0
        self._first = True

    def stop(self, timeout_s: float) -> None:
        """Look once more, send what was not tried yet, and end within so many seconds."""
        self._stop_at = time.monotonic() + timeout_s
        self._wake.set()
        self.join(timeout_s)

    # -- the thread -----------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until stopped; a fault here costs alerts and nothing else, and ends when its cause does."""
        told = ""
        while True:
            try:
                self._serve()
            except NewerFormatError as error:
                self.fault = f"no alerts are sent: {error}"
            except (sqlite3.Error, OSError) as error:
                self.fault = f"alerts wait: {error}"
            except Exception as error:  # noqa: BLE001 - the top of a thread
                self.fault = f"alerts wait after an internal error: {type(error).__name__}: {error}"
                if self.fault != told:
                    _log.exception("alerts wait %g s; everything else continues", REOPEN_S)
            else:
                return
            if self.fault != told:
                told = self.fault
                _log.error("%s; tried again each %g s, everything else continues", told, REOPEN_S)
            if self._stop_at is not None:
                return
            again = time.monotonic() + REOPEN_S
            while self._stop_at is None and (left := again - time.monotonic()) > 0:  # couriers wake us, too
                self._wake.wait(left)
                self._wake.clear()

    def _serve(self) -> None:
        """Open both databases and serve until stopped.

        Raises:
            NewerFormatError: a later release has one.
            sqlite3.Error: one of them cannot be used now, or is damaged.
            OSError: likewise.
        """
        with (
            closing(self._open_store()) as store,
            closing(AgentDatabase(self._places.database)) as database,
        ):
            while self._turn(store, database):
                self._wake.wait(LOOK_S)
                self._wake.clear()

    def _open_store(self) -> AlertStore:
        path = self._places.state / "alerts.db"
        known = _identity(path)
        store, broken = open_or_replace(path, AlertStore)
        if broken:
            _log.error("alerts.db was damaged and is now %s", broken)
        if broken or known is None or known != self._identity:
            self._file += 1
        self._identity = _identity(path)
        try:
            store.grow_wal()
        except sqlite3.OperationalError as error:
            _log.warning("alerts.db has no room of its own on a full disk: %s", error)
        return store

    def _turn(self, store: AlertStore, database: AgentDatabase) -> bool:
        """One look and what follows from it; False when it was the last one.

        Raises:
            sqlite3.Error: one that does not pass by itself, with the databases as they are open.
        """
        stop_at = self._stop_at
        try:
            self._rule_set.look(time.monotonic())
            self._take_reports()
            with store.transaction():
                for report in self._to_note:
                    self._note(store, report, time.time())
                # at first, an earlier agent may have left something of a configuration not named yet
                told = self._gather(store, database) if self._first or self._rule_set.any_rules else []
            self._first = False
            for report in self._to_note:
                self._couriers.pop(report.key, None)
            self._to_note.clear()
            self._since = store.meta("runs_seen") or self._since  # for an alerts.db that takes its place
            if told:
                database.drop_firings(told)
            self._dispatch(store, fresh_only=stop_at is not None)
            if store.has_changed():
                self.waiting = store.waiting()
                self.view = {"channels": store.summary(), "recent": store.recent(RECENT_SHOWN)}
            self.fault = ""
        except sqlite3.OperationalError as error:
            passes = any(word in str(error) for word in PASSING)
            if not passes or _identity(self._places.state / "alerts.db") != self._identity:
                raise
            self.fault = f"alerts wait: {error}"
        return stop_at is None or (bool(self._couriers) and time.monotonic() < stop_at)

    # -- what happened --------------------------------------------------------------------------

    def _gather(self, store: AlertStore, database: AgentDatabase) -> list[tuple[str, int, int, str]]:
        """Note all events; returns the firings that need not be kept any more."""
        now = time.time()
        self._runs(store, database, now)
        told = self._firings(store, database, now)
        self._machine(store, now)
        if time.monotonic() >= self._next_sweep or store.added >= SWEEP_AFTER:
            self._next_sweep = time.monotonic() + SWEEP_S
            store.sweep(now)
        return told

    def _runs(self, store: AlertStore, database: AgentDatabase, now: float) -> None:
        seen = store.meta("runs_seen")
        since = self._since if seen is None else min(seen, now)  # the clock may have gone back
        newest, unread = since, math.inf
        for plain in database.runs_since(since - CLOCK_SLACK_S):
            mark = f"{plain['state']}@{plain['closed'] or ''}"
            if self._rule_set.unread(plain.get("config")) and now - plain["updated"] < UNREAD_KEPT_S:
                unread = min(unread, float(plain["updated"]))  # it comes again; what is told is told once
                is_news = True
            else:
                newest = max(newest, float(plain["updated"]))
                is_news = store.run_changed(plain["run_id"], mark, now)
            if not is_news or plain["updated"] < self._oldest(store):
                continue
            for rule in self._rule_set.rules(plain.get("config")):
                if plain["state"] in rule.rule.when and fnmatch.fnmatchcase(plain["table"], rule.rule.table):
                    self._add(store, of_run(rule.name, plain, self._host), rule, now)
        newest = min(newest, unread)
        if newest != seen:
            store.note("runs_seen", newest)

    def _oldest(self, store: AlertStore) -> float:
        """Runs that changed before alerts were first wanted are old news."""
        began = store.meta("began")
        if began is None:
            began = self._since
            store.note("began", began)
        return began

    def _firings(
        self, store: AlertStore, database: AgentDatabase, now: float
    ) -> list[tuple[str, int, int, str]]:
        told: list[tuple[str, int, int, str]] = []
        for stream, run, firing in database.firings():
            if self._rule_set.unread(firing["config"]):
                continue
            told.append((stream, firing["number"], firing["offset"], firing["rule"]))
            plain = database.run(run)
            rule = next((r for r in self._rule_set.rules(firing["config"]) if r.name == firing["rule"]), None)
            if rule is None or plain is None:
                continue  # the rule was taken out of the file
            self._add(store, of_metric(rule, stream, firing, plain, self._host), rule, now)
        return told

    def _machine(self, store: AlertStore, now: float) -> None:
        rules = [rule for rule in self._rule_set.all_rules() if not rule.of_rows]
        low = [rule for rule in rules if "disk_low" in rule.rule.when]
        if low:
            self._disk_rules(store, low, now)
        parked = [rule for rule in rules if "replication_parked" in rule.rule.when]
        if parked and time.monotonic() >= self._next_replication:
            self._next_replication = time.monotonic() + REPLICATION_LOOK_S
            self._stopped = stopped(replication_status(self._places.state))
        for rule in parked:
            for subject, text in self._stopped.items():
                if store.level(f"{rule.name}:{subject}", holds=True):
                    alert = of_machine(rule.name, "replication_parked", subject, text, now, self._host)
                    self._add(store, alert, rule, now)
            store.keep_levels(f"{rule.name}:", set(self._stopped))

    def _disk_rules(self, store: AlertStore, rules: list[Rule], now: float) -> None:
        live = [opening for _, opening in self._live()]
        state = str(self._places.state)
        folders = {opening.root: opening.root_device for opening in live}
        free = self._disks.look({state: self._state_device, **folders}, time.monotonic())
        for rule in rules:
            own = self._rule_set.concerns_all(rule.config)
            for folder in {state, *(o.root for o in live if own or o.config == rule.config)} & free.keys():
                least, has = rule.rule.free_bytes, free[folder]
                name = f"{rule.name}:{folder}"
                if has >= least * REARM:
                    store.level(name, holds=False)
                elif has < least and store.level(name, holds=True):
                    text = f"{has >> 20} MiB are free on the disk of {folder}, less than {least >> 20} MiB"
                    alert = of_machine(rule.name, "disk_low", folder, text, now, self._host)
                    self._add(store, alert, rule, now)

    def _add(self, store: AlertStore, alert: Alert, rule: Rule, now: float) -> None:
        if store.add(alert, rule.config, rule.rule.send, rule.rule.interval_s, now):
            _log.info("alert: %s", alert.to_plain()["title"])

    # -- sending --------------------------------------------------------------------------------

    def _dispatch(self, store: AlertStore, *, fresh_only: bool) -> None:
        """Start a courier for each channel that has something due."""
        now = time.time()
        due: dict[tuple[str, str], list[Delivery]] = {}
        for delivery in store.due(now, now + 2 * RETRY_MOST_S, self._couriers):
            if not (fresh_only and delivery.tries):
                due.setdefault((delivery.config, delivery.channel), []).append(delivery)
        for key, deliveries in due.items():
            if self._rule_set.unread(key[0]):
                continue
            channel, refused = self._rule_set.channel(*key)
            if channel is None:
                numbers = [delivery.number for delivery in deliveries]
                store.done(numbers, GIVEN_UP, "the configuration has no such channel any more", now)
                continue
            route = Route(channel, Path(key[0]).parent, refused)
            courier = threading.Thread(
                target=self._carry,
                args=(key, self._file, route, batches(deliveries)),
                name="alert-courier",
                daemon=True,
            )
            self._couriers[key] = courier
            courier.start()

    def _carry(self, key: tuple[str, str], file: int, route: Route, messages: list[list[Delivery]]) -> None:
        """Send messages one after the other; after a failure the others are not tried now."""
        outcomes: list[_Outcome] = []
        for deliveries in messages:
            error, retry_after_s = "", None
            try:
                send(route, [delivery.alert for delivery in deliveries], self._host)
            except SendError as refused:
                error, retry_after_s = str(refused), refused.retry_after_s
            except Exception as fault:  # noqa: BLE001 - the top of a thread: one message must not end it
                _log.exception("an alert by channel %s could not be sent", key[1])
                error = f"{type(fault).__name__}: {fault}"
            given_up = bool(error) and time.time() - min(one.made for one in deliveries) > GIVE_UP_S
            outcomes.append(_Outcome(deliveries, error, retry_after_s, given_up))
            if given_up:
                _log.error("%d alert(s) given up, channel %s: %s", len(deliveries), key[1], error)
            elif error:
                _log.warning("alert not sent, channel %s: %s", key[1], error)
            else:
                _log.info("%d alert(s) sent by channel %s", len(deliveries), key[1])
            if error:
                break
        self._reports.put(_Report(key, file, outcomes))
        self._wake.set()

    def _take_reports(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._to_note.append(self._reports.get_nowait())

    def _note(self, store: AlertStore, report: _Report, now: float) -> None:
        """Store what a courier reports."""
        if report.file != self._file:
            return  # the numbers mean other deliveries now
        for outcome in report.outcomes:
            numbers = [delivery.number for delivery in outcome.deliveries]
            if not outcome.error or outcome.given_up:
                store.done(numbers, GIVEN_UP if outcome.given_up else SENT, outcome.error, now)
            else:
                tries = max(delivery.tries for delivery in outcome.deliveries) + 1
                next_at = now + retry_delay(tries, outcome.retry_after_s, random.random())  # noqa: S311
                store.failed(*report.key, numbers, outcome.error, next_at)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def batches(deliveries: list[Delivery]) -> list[list[Delivery]]:
    """One message each; where many wait, one message for all, so that a mass kill is no flood."""
    if len(deliveries) <= MERGE_FROM:
        return [[delivery] for delivery in deliveries]
    return [deliveries[at : at + MOST_MERGED] for at in range(0, len(deliveries), MOST_MERGED)]


def retry_delay(tries: int, asked_s: float | None, chance: float) -> float:
    """Seconds until the next try.

    Args:
        tries: failed so far, one at least.
        asked_s: what the server asked for.
        chance: from 0 to 1; spreads agents that all lost the same server.
    """
    if asked_s is not None:
        return min(asked_s, RETRY_MOST_S)
    return float(min(RETRY_MOST_S, RETRY_FIRST_S * 2 ** min(tries - 1, 20))) * (0.5 + 0.5 * chance)


class Disks:
    """Free bytes of folders; a file system that hangs leaves only its own unknown."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._lanes = Lanes("alert-disks")
        self._next = 0.0

    def look(self, folders: Mapping[str, int], now: float) -> dict[str, int]:
        """Free bytes as last seen, by folder; looks again in the background when that is due.

        Args:
            folders: folder → `st_dev` as it is known, which tells file systems apart.
            now: monotonic.
        """
        if now >= self._next:
            self._next = now + DISK_LOOK_S
            self._free = {folder: free for folder, free in list(self._free.items()) if folder in folders}
            by_disk: dict[Disk, list[str]] = {}
            for folder in sorted(folders):
                by_disk.setdefault(disk_of(folder, folders[folder]), []).append(folder)
            idle = {disk: some for disk, some in by_disk.items() if self._lanes.hung_s(disk) is None}
            self._lanes.run({disk: partial(self._see, some) for disk, some in idle.items()}, 0.0)
        return dict(self._free)

    def _see(self, folders: list[str]) -> None:
        for folder in folders:
            with suppress(OSError):
                disk = os.statvfs(folder)
                self._free[folder] = disk.f_bavail * disk.f_frsize


# -- alerts.db ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """One alert by one channel."""

    number: int
    config: str
    channel: str
    alert: dict[str, Any]
    tries: int
    made: float


class AlertStore:
    """The connection to alerts.db."""

    def __init__(self, path: Path) -> None:
        """Open, creating the tables.

        Raises:
            NewerFormatError: a later release has it; nothing is written to it.
            sqlite3.Error: the file cannot be opened or is not a database.
        """
        self.added = 0  # events since the last sweep
        self._seen = -1  # of SQLite's count of changes
        self._db = connect(path, STEPS)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA cache_size=-256")  # KiB
        migrate(self._db, path, STEPS)

    def grow_wal(self) -> None:
        """See `rla_agent.store.database.grow_wal`."""
        grow_wal(self._db)

    def has_changed(self) -> bool:
        """Whether anything was stored since the last call; True at first."""
        former, self._seen = self._seen, self._db.total_changes
        return former != self._seen

    def transaction(self) -> AbstractContextManager[object]:
        """Everything inside, or nothing."""
        return transaction(self._db)

    def add(self, alert: Alert, config: str, channels: Sequence[str], interval_s: float, now: float) -> bool:
        """Note an event and what is to be sent of it; nothing when it is known already.

        Within `interval_s` of the last message of this rule, event and run it waits for the end of the
        interval; of several that wait only the last is sent, with their number.

        Args:
            alert: the event.
            config: configuration that names the channels.
            channels: their names.
            interval_s: see above.
            now: Unix seconds.

        Returns:
            Whether the event is new.
        """
        key = config + "\0" + alert.key
        if self._db.execute("SELECT 1 FROM alerts WHERE key=?", (key,)).fetchone():
            return False
        limit = (f"{alert.rule}:{alert.when}", alert.run)
        row = self._db.execute(
            "SELECT until, held, alert FROM limits WHERE rule=? AND run=?", limit
        ).fetchone()
        until, held, former = row or (0.0, 0, "")
        if former and now >= until:  # what was held went out at `until`
            until, held, former = until + interval_s, 0, ""
        hold = row is not None and now < until <= now + 2 * interval_s
        self._db.execute(
            "INSERT INTO alerts VALUES(?,?,?)", (key, now, json.dumps(alert.to_plain(held if hold else 0)))
        )
        self.added += 1
        if hold and former:
            self._db.execute(
                "UPDATE deliveries SET alert=? WHERE state=? AND tries=0 AND alert=?", (key, WAITING, former)
            )
        else:
            self._db.executemany(
                "INSERT INTO deliveries(alert,config,channel,next_at,made) VALUES(?,?,?,?,?)",
                ((key, config, channel, until if hold else now, now) for channel in channels),
            )
        values = (until, held + 1, key) if hold else (now + interval_s, 0, "")
        self._db.execute("INSERT OR REPLACE INTO limits VALUES(?,?,?,?,?)", (*limit, *values))
        return True

    def run_changed(self, run: str, mark: str, now: float) -> bool:
        """Whether a run's mark is not the one of the last look; it is from now on."""
        row = self._db.execute("SELECT mark FROM runs WHERE run=?", (run,)).fetchone()
        if row is not None and row[0] == mark:
            return False
        self._db.execute("INSERT OR REPLACE INTO runs VALUES(?,?,?)", (run, mark, now))
        return True

    def level(self, name: str, *, holds: bool) -> bool:
        """Whether a condition begins to hold now; what holds is remembered."""
        known = self._db.execute("SELECT 1 FROM levels WHERE name=?", (name,)).fetchone() is not None
        if holds and not known:
            self._db.execute("INSERT INTO levels VALUES(?)", (name,))
        elif known and not holds:
            self._db.execute("DELETE FROM levels WHERE name=?", (name,))
        return holds and not known

    def keep_levels(self, prefix: str, names: set[str]) -> None:
        """Of the conditions whose name begins with `prefix`, only these hold."""
        rows = self._db.execute("SELECT name FROM levels WHERE substr(name, 1, ?)=?", (len(prefix), prefix))
        gone = [name for (name,) in rows if name[len(prefix) :] not in names]
        self._db.executemany("DELETE FROM levels WHERE name=?", ((name,) for name in gone))

    # -- deliveries -----------------------------------------------------------------------------

    def due(self, now: float, latest: float, busy: Collection[tuple[str, str]] = ()) -> list[Delivery]:
        """Deliveries to try now, oldest first.

        Args:
            now: Unix seconds.
            latest: no delivery waits longer than until here (a clock that was set back).
            busy: (config, channel) of those that send now; what waits for them holds up no others.
        """
        marks = ",".join(["(?,?)"] * len(busy))
        free = f" AND (d.config, d.channel) NOT IN (VALUES {marks})" if busy else ""
        rows = self._db.execute(
            "SELECT d.id, d.config, d.channel, a.data, d.tries, d.made FROM deliveries d "  # noqa: S608 - marks
            "JOIN alerts a ON a.key = d.alert WHERE d.state=? AND (d.next_at<=? OR d.next_at>?)"
            f"{free} ORDER BY d.id LIMIT 500",
            (WAITING, now, latest, *(name for key in busy for name in key)),
        )
        return [
            Delivery(n, config, channel, json.loads(data), t, made)
            for n, config, channel, data, t, made in rows
        ]

    def done(self, numbers: Sequence[int], state: int, error: str, now: float) -> None:
        """Deliveries were sent or given up."""
        self._db.executemany(
            "UPDATE deliveries SET state=?, tries=tries+1, error=?, done=? WHERE id=?",
            ((state, error, now, number) for number in numbers),
        )

    def failed(self, config: str, channel: str, numbers: Sequence[int], error: str, next_at: float) -> None:
        """A try failed; there will be another, and no delivery by this channel before."""
        self._db.executemany(
            "UPDATE deliveries SET tries=tries+1, error=?, next_at=? WHERE id=?",
            ((error, next_at, number) for number in numbers),
        )
        self._db.execute(
            "UPDATE deliveries SET next_at=max(next_at, ?) WHERE state=? AND config=? AND channel=?",
            (next_at, WAITING, config, channel),
        )

    def waiting(self) -> int:
        """Deliveries that are neither sent nor given up."""
        (count,) = self._db.execute("SELECT count(*) FROM deliveries WHERE state=?", (WAITING,)).fetchone()
        return int(count)

    def summary(self) -> list[dict[str, Any]]:
        """Per channel: config, channel, waiting, sent, given_up, last_sent, next_try, error.

        `error` is that of the last try, empty when a message went through since.
        """
        rows = self._db.execute(
            "SELECT config, channel, sum(state=0), sum(state=1), sum(state=2),"
            " max(CASE state WHEN 1 THEN done END), min(CASE state WHEN 0 THEN next_at END)"
            " FROM deliveries GROUP BY config, channel"
        ).fetchall()
        names = ("config", "channel", "waiting", "sent", "given_up", "last_sent", "next_try")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for entry in found:
            error = self._db.execute(
                "SELECT error FROM deliveries WHERE config=? AND channel=? AND tries>0 AND state IN (?,?)"
                " AND coalesce(done, ?)>? ORDER BY state, id DESC LIMIT 1",
                (entry["config"], entry["channel"], WAITING, GIVEN_UP, 1e18, entry["last_sent"] or 0.0),
            ).fetchone()
            entry["error"] = error[0] if error else ""
        return found

    def recent(self, most: int) -> list[dict[str, Any]]:
        """The last events, newest first: time, event, title."""
        rows = self._db.execute("SELECT data FROM alerts ORDER BY at DESC LIMIT ?", (most,))
        plains = (json.loads(data) for (data,) in rows)
        return [{name: plain[name] for name in ("time", "event", "title")} for plain in plains]

    def meta(self, name: str) -> float | None:
        """A number that was noted."""
        row = self._db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return None if row is None else float(row[0])

    def note(self, name: str, value: float) -> None:
        """Note a number."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES(?,?)", (name, repr(value)))

    def sweep(self, now: float) -> None:
        """Forget what is old, and what is beyond the bounds."""
        self._db.execute(
            "UPDATE deliveries SET state=?, done=?, error='too many waited' WHERE state=? AND id NOT IN"
            " (SELECT id FROM deliveries WHERE state=? ORDER BY id DESC LIMIT ?)",
            (GIVEN_UP, now, WAITING, WAITING, MAX_WAITING),
        )
        self._db.execute("DELETE FROM deliveries WHERE state<>? AND done<?", (WAITING, now - KEPT_S))
        self._db.execute(
            "DELETE FROM alerts WHERE key NOT IN (SELECT alert FROM deliveries) AND (at<? OR key NOT IN"
            " (SELECT key FROM alerts ORDER BY at DESC LIMIT ?))",
            (now - KEPT_S, MAX_EVENTS),
        )
        self._db.execute("DELETE FROM runs WHERE at<?", (now - KEPT_RUNS_S,))
        self._db.execute("DELETE FROM limits WHERE until<?", (now - KEPT_S,))
        self.added = 0

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
