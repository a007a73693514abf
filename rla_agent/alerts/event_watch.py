"""Watch of the events that become alerts.

It reads durable state: run states in agent.db (so an alert reports nothing that a crash could undo, and one
that a crash interrupted is made again), firings of metric rules there, free space, replication.
"""

from __future__ import annotations

import fnmatch
import math
import os
import socket
import time
from collections.abc import Callable

from rla_agent.alerts.alert_store import AlertStore
from rla_agent.alerts.configured_rule import ConfiguredRule
from rla_agent.alerts.disk_watch import DiskWatch
from rla_agent.alerts.messages import Alert, of_machine, of_metric, of_run
from rla_agent.alerts.rule_files import RuleSet
from rla_agent.replicate.problems import stopped
from rla_agent.replicate.status import replication_status
from rla_agent.store.agent_db import AgentDatabase
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening

SWEEP_S = 3600.0
SWEEP_AFTER = 10_000  # events: a metric that flaps gives some hundred a second
CLOCK_SLACK_S = 60.0
UNREAD_KEPT_S = 3600.0  # for a configuration that cannot be read: each round reads all runs since then
REPLICATION_LOOK_S = 10.0
REARM = 1.1  # a disk counts as recovered when it has so much more than the limit


class EventWatch:
    """Stores events as alerts; belongs to the dispatcher's thread.

    Args:
        places: of the agent.
        rule_set: the rules and channels.
        live: gives (stream name, opening) of each stream whose writer lives.
        since: Unix seconds; runs that changed before are not looked at where there is no alerts.db yet.
    """

    def __init__(
        self, places: Places, rule_set: RuleSet, live: Callable[[], list[tuple[str, Opening]]], since: float
    ) -> None:
        self._places, self._rule_set, self._live = places, rule_set, live
        self._since = since
        self._host = socket.gethostname() or "localhost"
        self._disks = DiskWatch()
        self._state_device = os.stat(places.state).st_dev
        self._stopped: dict[str, str] = {}  # stopped part of replication → details
        self._next_replication = self._next_sweep = 0.0
        self._titles: list[str] = []  # of the alerts of this round

    def seen_up_to(self, store: AlertStore) -> None:
        """Store how far runs were read, for an alerts.db that replaces this one."""
        self._since = store.meta("runs_seen") or self._since

    def look(self, store: AlertStore, database: AgentDatabase) -> list[tuple[str, int, int, str]]:
        """Store all events in the open transaction; returns the firings that agent.db may drop.

        Raises:
            sqlite3.Error: one of the databases cannot be used now.
        """
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
                unread = min(unread, float(plain["updated"]))  # it is read again, and alerts are unique
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
        """Time before which changes of runs are not alerted: alerts were not configured then."""
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

    def take_titles(self) -> list[str]:
        """Titles of the alerts that were added since the last call."""
        titles, self._titles = self._titles, []
        return titles
