"""alerts.db, the dispatcher's store of events.

Only the dispatcher's thread uses it. An event has a key, so that one that is read again after a restart makes
no second alert. A delivery is one alert by one channel; it stays until it was sent or discarded. `runs` has
the last known state of each run, `limits` the time until which a rule's alerts about a run are held back,
`levels` the present conditions of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rla_agent.alerts.delivery import Delivery
from rla_agent.alerts.messages import Alert
from rla_agent.store.sqlite import connect, grow_wal, migrate, transaction

KEPT_S = 7 * 86400.0  # of events, for `alerts show` and against duplicates
KEPT_RUNS_S = 60 * 86400.0
MAX_EVENTS = 20_000
MAX_WAITING = 5000  # deliveries; beyond, the oldest are discarded
WAITING, SENT, GIVEN_UP = 0, 1, 2
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
        """See `rla_agent.store.sqlite.grow_wal`."""
        grow_wal(self._db)

    def has_changed(self) -> bool:
        """Whether anything was stored since the last call; True at first."""
        former, self._seen = self._seen, self._db.total_changes
        return former != self._seen

    def transaction(self) -> AbstractContextManager[object]:
        """Everything inside, or nothing."""
        return transaction(self._db)

    def add(self, alert: Alert, config: str, channels: Sequence[str], interval_s: float, now: float) -> bool:
        """Store an event and its deliveries, unless it is known already.

        Within `interval_s` of the last message of this rule, event and run it waits for the end of the
        interval; of several waiting ones only the last is sent, with their number.

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
        """Whether a run's mark differs from the stored one, which it replaces."""
        row = self._db.execute("SELECT mark FROM runs WHERE run=?", (run,)).fetchone()
        if row is not None and row[0] == mark:
            return False
        self._db.execute("INSERT OR REPLACE INTO runs VALUES(?,?,?)", (run, mark, now))
        return True

    def level(self, name: str, *, holds: bool) -> bool:
        """Whether a condition begins to hold now; present conditions are stored."""
        known = self._db.execute("SELECT 1 FROM levels WHERE name=?", (name,)).fetchone() is not None
        if holds and not known:
            self._db.execute("INSERT INTO levels VALUES(?)", (name,))
        elif known and not holds:
            self._db.execute("DELETE FROM levels WHERE name=?", (name,))
        return holds and not known

    def keep_levels(self, prefix: str, names: set[str]) -> None:
        """Remove all conditions whose name begins with `prefix` except these."""
        rows = self._db.execute("SELECT name FROM levels WHERE substr(name, 1, ?)=?", (len(prefix), prefix))
        gone = [name for (name,) in rows if name[len(prefix) :] not in names]
        self._db.executemany("DELETE FROM levels WHERE name=?", ((name,) for name in gone))

    def due(self, now: float, latest: float, busy: Collection[tuple[str, str]] = ()) -> list[Delivery]:
        """Deliveries that are due, oldest first.

        Args:
            now: Unix seconds.
            latest: no delivery waits longer than until here (a clock that was set back).
            busy: (config, channel) of those that send now; their waiting deliveries block no others.
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
        """Remove deliveries that were sent or discarded."""
        self._db.executemany(
            "UPDATE deliveries SET state=?, tries=tries+1, error=?, done=? WHERE id=?",
            ((state, error, now, number) for number in numbers),
        )

    def failed(self, config: str, channel: str, numbers: Sequence[int], error: str, next_at: float) -> None:
        """Schedule another attempt after a failure, and no delivery by this channel before."""
        self._db.executemany(
            "UPDATE deliveries SET tries=tries+1, error=?, next_at=? WHERE id=?",
            ((error, next_at, number) for number in numbers),
        )
        self._db.execute(
            "UPDATE deliveries SET next_at=max(next_at, ?) WHERE state=? AND config=? AND channel=?",
            (next_at, WAITING, config, channel),
        )

    def waiting(self) -> int:
        """Number of waiting deliveries."""
        (count,) = self._db.execute("SELECT count(*) FROM deliveries WHERE state=?", (WAITING,)).fetchone()
        return int(count)

    def summary(self) -> list[dict[str, Any]]:
        """Per channel: config, channel, waiting, sent, given_up, last_sent, next_try, error.

        `error` is that of the last attempt, empty after a success.
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
        """A stored number."""
        row = self._db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return None if row is None else float(row[0])

    def note(self, name: str, value: float) -> None:
        """Store a number."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES(?,?)", (name, repr(value)))

    def sweep(self, now: float) -> None:
        """Delete rows that are old or beyond the bounds."""
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
