"""Alerts as plain data with their words, and alerts.db: which of them were told, or are to be told.

An event has a key, so that one that is seen again after a restart gives no second alert. A delivery is
one alert by one channel; it stays until it was sent or given up. `runs` holds the last state of each
run that was looked at, `limits` until when a rule tells no more of a run, `levels` which conditions of
the machine hold now. Everything of one look is one transaction. The dispatcher's thread alone uses it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rla_agent.alerts.rules import Rule
from rla_agent.store.state import Step, connect, migrate, transaction
from rla_client.config.alerts import MESSAGE
from rla_client.contract.layout import RunIndex
from rla_client.contract.textformat import printable

MAX_TITLE_CHARS = 200
MAX_TEXT_CHARS = 2000
KEPT_S = 7 * 86400.0  # of events, for `alerts show` and against telling them twice
KEPT_RUNS_S = 60 * 86400.0
MAX_EVENTS = 20_000
MAX_WAITING = 5000  # deliveries; beyond, the oldest are given up
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
STEPS: tuple[Step, ...] = (_SCHEMA,)  # to the newest version, in order; a change is a new one at the end


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a rule tells of.

    Attributes:
        key: names the event; the same event never has two alerts.
        when: event, one of `rla_client.config.alerts.EVENTS`, or test.
        title: one line.
        text: the details, a few lines.
        at: Unix seconds of the event.
        host: of this agent.
        rule: id of the rule.
        run: id of the run, empty for events of the machine.
        details: plain data for programs.
    """

    key: str
    when: str
    title: str
    text: str
    at: float
    host: str
    rule: str
    run: str
    details: dict[str, Any]

    def to_plain(self, held: int = 0) -> dict[str, Any]:
        """Content of the webhook's and the command's JSON.

        Args:
            held: alerts like this one that were not sent since the last one, to stay within interval_s.
        """
        text = self.text
        if held:
            text += f"\n{held} more like this one came since the last message."
        return {
            "id": hashlib.sha256(self.key.encode("utf-8", "surrogateescape")).hexdigest()[:32],
            "event": self.when,
            "title": printable(self.title)[:MAX_TITLE_CHARS],
            "text": "\n".join(printable(line) for line in text.split("\n"))[:MAX_TEXT_CHARS],
            "time": self.at,
            "host": self.host,
            "held_back": held,
            **self.details,
        }


def of_run(rule: str, plain: Mapping[str, Any], host: str) -> Alert:
    """A run came into a state.

    Args:
        rule: id.
        plain: the run's record as agent.db has it.
        host: of this agent.
    """
    state, at = str(plain["state"]), float(plain["closed"] or plain["updated"])
    lines = [f"reason: {plain['reason']}"] if plain.get("reason") else []
    key = f"{rule}:{plain['run_id']}:{state}:{plain['closed'] or plain['last_row'] or plain['opened']}"
    text = "\n".join([*lines, *_run_lines(plain)])
    title = f"{state}: {_run_name(plain)}"
    return Alert(key, state, title, text, at, host, rule, plain["run_id"], {"run": _run_fields(plain)})


def of_metric(
    known: Rule,
    stream: str,
    firing: Mapping[str, Any],
    plain: Mapping[str, Any],
    host: str,
) -> Alert:
    """A metric rule fired, or the script asked to tell something.

    Args:
        known: the rule.
        stream: in which.
        firing: `number`, `offset` and the fields of `Firing`.
        plain: record of the run.
        host: of this agent.
    """
    rule = known.rule
    metrics = {str(name): value for name, value in firing["metrics"].items()}
    named = ", ".join(f"{name} = {value}" for name, value in metrics.items())
    event = rule.when[0]
    what = f"NaN in {', '.join(metrics)}" if event == "nan" else f"{named}, {event} {rule.value:g}"
    if event == MESSAGE:
        what = firing["title"]
    rows = f" for {rule.rows} rows" if rule.rows > 1 else ""
    where = "once" if rule.once else f"{stream}:{firing['number']}:{firing['offset']}"
    details = {
        "run": _run_fields(plain),
        "metrics": metrics,
        "time_step": firing["time_step"],
        "threshold": rule.value if event in {"above", "below"} else None,
    }
    said = [firing["text"]] if event == MESSAGE and firing["text"] else []
    text = "\n".join([f"{what}{rows}, at time-step {firing['time_step']:g}", *said, *_run_lines(plain)])
    return Alert(
        f"{known.name}:{plain['run_id']}:{where}", event, f"{what}: {_run_name(plain)}", text,
        float(firing["timestamp"]), host, known.name, plain["run_id"], details,
    )  # fmt: skip


def of_machine(rule: str, event: str, subject: str, text: str, now: float, host: str) -> Alert:
    """A disk is low, or replication has stopped; `subject` names which."""
    words = {"disk_low": "disk low", "replication_parked": "replication parked"}.get(event, event)
    key = f"{rule}:{event}:{subject}:{now:.0f}"
    return Alert(key, event, f"{words} on {host}: {subject}", text, now, host, rule, "", {"subject": subject})


def of_test(now: float, host: str) -> Alert:
    """What `rla-agent alerts test` sends."""
    text = "If you can read this, alerts reach you by this channel."
    return Alert(f"test:{now}", "test", f"test message of rla-agent on {host}", text, now, host, "", "", {})


def _run_fields(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What programs get of a run."""
    names = (
        "run_id", "table", "index", "root", "log_folder", "host", "user", "pid", "state", "reason",
        "exit_code", "signal", "opened", "last_row", "closed", "time_step", "rows",
    )  # fmt: skip
    return {name: plain.get(name) for name in names}


def _run_name(plain: Mapping[str, Any]) -> str:
    """Table, time and what is tracked, for a title."""
    if not plain["table"]:
        return str(plain["root"])
    index = RunIndex.parse(str(plain["index"]))
    if index is None:
        return f"{plain['table']}/{plain['index']}"
    return f"{plain['table']} {index.record_date[:19]} {index.info}"


def _run_lines(plain: Mapping[str, Any]) -> list[str]:
    step = plain.get("time_step")
    lines = [f"run: {_run_name(plain)}", f"user {plain['user']}, process {plain['pid']} on {plain['host']}"]
    if step is not None:
        lines.append(f"last time-step {step:g}, {plain['rows']} rows")
    if plain.get("last_row"):
        when = datetime.fromtimestamp(plain["last_row"]).astimezone().isoformat(" ", "seconds")
        lines.append(f"last row {when}")
    return [*lines, f"folder: {plain['log_folder']}"]


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
        self._db = connect(path, STEPS)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA cache_size=-256")  # KiB
        migrate(self._db, path, STEPS)

    def transaction(self) -> AbstractContextManager[object]:
        """Everything inside, or nothing."""
        return transaction(self._db)

    # -- events ---------------------------------------------------------------------------------

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

    def failed(self, numbers: Sequence[int], error: str, next_at: float) -> None:
        """A try failed; there will be another."""
        self._db.executemany(
            "UPDATE deliveries SET tries=tries+1, error=?, next_at=? WHERE id=?",
            ((error, next_at, number) for number in numbers),
        )

    def postpone(self, config: str, channel: str, next_at: float) -> None:
        """No delivery by this channel before a moment."""
        self._db.execute(
            "UPDATE deliveries SET next_at=max(next_at, ?) WHERE state=? AND config=? AND channel=?",
            (next_at, WAITING, config, channel),
        )

    def waiting(self) -> int:
        """Deliveries that are neither sent nor given up."""
        return int(
            self._db.execute("SELECT count(*) FROM deliveries WHERE state=?", (WAITING,)).fetchone()[0]
        )

    # -- looking --------------------------------------------------------------------------------

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
