"""Dispatcher of alerts, a thread that turns events into deliveries.

It looks each LOOK_S at what is durable: run states in agent.db (so an alert tells of nothing that a crash
could undo, and one that a crash interrupted is seen again), firings of metric rules there, free space,
replication. What it finds goes into alerts.db in one transaction, then out of agent.db.

Sending never happens here: each channel has one courier thread at a time, so that a server that hangs holds
up its own channel and nothing else. A message is marked as sent after the other side accepted it: a kill in
between sends it again, with the same Message-ID or Idempotency-Key.
"""

from __future__ import annotations

import fnmatch
import logging
import math
import os
import queue
import random
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_agent.alerts.alert_store import GIVEN_UP, SENT, AlertStore
from rla_agent.alerts.channels import send
from rla_agent.alerts.delivery import GIVE_UP_S, RETRY_MOST_S, Delivery, batches, retry_delay
from rla_agent.alerts.disk_watch import DiskWatch
from rla_agent.alerts.messages import Alert, of_machine, of_metric, of_run
from rla_agent.alerts.route import Route, SendError
from rla_agent.alerts.rule import ConfiguredRule
from rla_agent.alerts.rule_files import RuleSet
from rla_agent.replicate.problems import stopped
from rla_agent.replicate.status import replication_status
from rla_agent.store.agent_db import AgentDatabase
from rla_agent.store.sqlite import NewerFormatError, open_or_replace
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening

LOOK_S = 1.0
REOPEN_S = 10.0  # after a fault of alerts.db or agent.db, or of ours
PASSING = ("full", "locked")  # in what SQLite says of faults that an open database gets over
SWEEP_S = 3600.0
SWEEP_AFTER = 10_000  # events: a metric that flaps gives some hundred a second
CLOCK_SLACK_S = 60.0
UNREAD_KEPT_S = 3600.0  # for a configuration that cannot be read: each look takes all runs since then
RECENT_SHOWN = 20
REPLICATION_LOOK_S = 10.0
REARM = 1.1  # a disk is well again when it has so much more than the limit
_log = logging.getLogger("rla_agent.alerts")


@dataclass(frozen=True, slots=True)
class _MessageResult:
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
    outcomes: list[_MessageResult]


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
        self._disks = DiskWatch()
        self._state_device = os.stat(places.state).st_dev
        self._stopped: dict[str, str] = {}  # what of replication has stopped → details
        self._next_replication = 0.0
        self._couriers: dict[tuple[str, str], threading.Thread] = {}
        self._reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
        self._to_note: list[_Report] = []  # taken from there; alerts.db does not have them yet
        self._titles: list[str] = []  # of the alerts that this turn adds
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
            self._titles.clear()
            with store.transaction():
                for report in self._to_note:
                    self._note(store, report, time.time())
                # at first, an earlier agent may have left something of a configuration not named yet
                told = self._gather(store, database) if self._first or self._rule_set.any_rules else []
            for title in self._titles:
                _log.info("alert: %s", title)
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

    def _disk_rules(self, store: AlertStore, rules: list[ConfiguredRule], now: float) -> None:
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

    def _add(self, store: AlertStore, alert: Alert, rule: ConfiguredRule, now: float) -> None:
        if store.add(alert, rule.config, rule.rule.send, rule.rule.interval_s, now):
            self._titles.append(alert.to_plain()["title"])

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
        outcomes: list[_MessageResult] = []
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
            outcomes.append(_MessageResult(deliveries, error, retry_after_s, given_up))
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
