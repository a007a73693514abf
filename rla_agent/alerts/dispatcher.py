"""Dispatcher of alerts, a thread that turns events into deliveries.

Each LOOK_S it reads new events (`event_watch`) and stores them in alerts.db in one transaction, with the
couriers' results; then stored firings are deleted from agent.db, and couriers start with due deliveries.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from rla_agent.alerts.alert_store import AlertStore
from rla_agent.alerts.couriers import Couriers
from rla_agent.alerts.event_watch import EventWatch
from rla_agent.alerts.rule_files import RuleSet
from rla_agent.store.agent_db import AgentDatabase
from rla_agent.store.sqlite import NewerFormatError, open_or_replace
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening

LOOK_S = 1.0
REOPEN_S = 10.0  # after a fault of alerts.db or agent.db, or of ours
PASSING = ("full", "locked")  # in SQLite's messages for faults that an open database survives
RECENT_SHOWN = 20
_log = logging.getLogger("rla_agent.alerts")


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
        self._events = EventWatch(places, rule_set, live, since)
        self._file = 0  # counts the files that were alerts.db
        self._identity: tuple[int, int] | None = None  # of that file
        self._wake = threading.Event()
        self._stop_at: float | None = None
        self._couriers = Couriers(rule_set, self._wake.set)
        self._first = True

    def stop(self, timeout_s: float) -> None:
        """Read events once more, send deliveries without an attempt so far, and end in time."""
        self._stop_at = time.monotonic() + timeout_s
        self._wake.set()
        self.join(timeout_s)

    def run(self) -> None:
        """Serve until stopped; a fault here affects alerts only, and ends with its cause."""
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
        """One round of reading and sending; False when it was the last one.

        Raises:
            sqlite3.Error: one that lasts while the databases are open.
        """
        stop_at = self._stop_at
        try:
            self._rule_set.look(time.monotonic())
            self._events.take_titles()  # of a rolled back round
            with store.transaction():
                self._couriers.note(store, self._file)
                # at first, an earlier agent may have left something of a configuration not named yet
                told = self._events.look(store, database) if self._first or self._rule_set.any_rules else []
            for title in self._events.take_titles():
                _log.info("alert: %s", title)
            self._first = False
            self._couriers.noted()
            self._events.seen_up_to(store)
            if told:
                database.drop_firings(told)
            self._couriers.send_due(store, self._file, fresh_only=stop_at is not None)
            if store.has_changed():
                self.waiting = store.waiting()
                self.view = {"channels": store.summary(), "recent": store.recent(RECENT_SHOWN)}
            self.fault = ""
        except sqlite3.OperationalError as error:
            passes = any(word in str(error) for word in PASSING)
            if not passes or _identity(self._places.state / "alerts.db") != self._identity:
                raise
            self.fault = f"alerts wait: {error}"
        return stop_at is None or (self._couriers.busy and time.monotonic() < stop_at)


def _identity(path: Path) -> tuple[int, int] | None:
    """Identity of a file, None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
