"""agent.db, the agent's durable state.

It is in WAL mode, synchronous=FULL. `outputs` has one position per (stream, output): all records before it
are durable in the file's first `size` bytes. It is written after the files were synced, in one transaction a
commit, so after any crash a file is truncated to `size` and the spool is replayed from the position. `intent`
names a finished temp file that is about to take the output's name. `runs` is the registry behind `status`,
trimmed as runs end; `jobs` has the unfinished jobs.

Each thread has a connection of its own. At start the WAL is grown past its checkpoint size and never
truncated, because a young WAL on a full disk cannot commit while a grown one can.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla_agent.model.records import Position
from rla_agent.model.run_record import RunRecord
from rla_agent.store.sqlite import WAL_PAGES, Step, connect, connect_readonly, grow_wal, migrate, transaction
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.text.number_parsing import INT64, parse_uint

KEPT_RUNS = 1000  # ended runs that are remembered, beside those of the last KEPT_RUNS_S
KEPT_RUNS_S = 3600.0  # until then alerts have seen them, and `rla-agent run` has noted its command's end
TRIMMED_AT_ONCE = 100  # in a commit; each that ends adds one
MAX_FIRINGS = 20_000  # that alerts have not taken; beyond, a metric flaps or alerts have ended
_log = logging.getLogger("rla_agent.store.agent_db")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS outputs(
  stream TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL, generation INT NOT NULL,
  size INT NOT NULL, number INT NOT NULL, offset INT NOT NULL, state TEXT NOT NULL,
  intent TEXT NOT NULL DEFAULT '', final INT NOT NULL DEFAULT 0,
  PRIMARY KEY(stream, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs(
  run TEXT PRIMARY KEY, updated REAL NOT NULL, live INT NOT NULL, data TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_updated ON runs(updated, live);
CREATE TABLE IF NOT EXISTS done(stream TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs(
  stream TEXT NOT NULL, number INT NOT NULL, offset INT NOT NULL, kind TEXT NOT NULL,
  fields BLOB NOT NULL, tries INT NOT NULL DEFAULT 0, PRIMARY KEY(stream, number, offset)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS firings(
  stream TEXT NOT NULL, number INT NOT NULL, offset INT NOT NULL, rule TEXT NOT NULL, run TEXT NOT NULL,
  fields TEXT NOT NULL, PRIMARY KEY(stream, number, offset, rule)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS filler(page BLOB);
"""


STEPS: tuple[Step, ...] = (_SCHEMA,)  # to the newest version, in order; a change is a new one at the end


@dataclass(frozen=True, slots=True)
class OutputRow:
    """Durable state of one output."""

    name: str
    path: str
    generation: int
    size: int
    position: Position
    state: dict[str, Any]
    intent: str = ""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job that is accepted and not done.

    Attributes:
        tries: later starts of the agent that began it and did not come to an outcome.
    """

    stream: str
    position: Position
    kind: str
    fields: bytes
    tries: int = 0


@dataclass(frozen=True, slots=True)
class FiringRow:
    """A metric rule fired at the row that ends at `offset` of segment `number`."""

    stream: str
    run: str
    number: int
    offset: int
    rule: str
    fields: dict[str, Any]


@dataclass(slots=True)
class CommitChanges:
    """Changes of one commit, stored atomically."""

    outputs: list[tuple[str, OutputRow]] = field(default_factory=list)
    runs: list[tuple[str, float, bool, dict[str, Any]]] = field(default_factory=list)
    done: list[tuple[str, float]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    jobs: list[JobRow] = field(default_factory=list)
    jobs_done: list[tuple[str, Position]] = field(default_factory=list)
    firings: list[FiringRow] = field(default_factory=list)

    def __bool__(self) -> bool:
        stored = (self.outputs, self.runs, self.done, self.forgotten, self.jobs, self.jobs_done, self.firings)
        return any(stored)


class AgentDatabase:
    """One thread's connection to agent.db."""

    def __init__(self, path: Path, *, beside: bool = False, readonly: bool = False) -> None:
        """Open, creating the tables.

        Args:
            path: of the file.
            readonly: for a file that an agent has open; none is made.
            beside: the caller does not hold the agent's lock: a file of an earlier release stays so.

        Raises:
            NewerFormatError: a later release has it; nothing is written to it.
            EarlierFormatError: an earlier one has it, and `beside`.
            sqlite3.Error: the file cannot be opened or is not a database.
        """
        if readonly:
            self._db = connect_readonly(path, STEPS)
            return
        self._db = connect(path, STEPS)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        self._db.execute("PRAGMA cache_size=-512")  # KiB; the tables are small
        migrate(self._db, path, STEPS, may=not beside)

    def grow_wal(self) -> None:
        """See `grow_wal`."""
        grow_wal(self._db)

    def commit(self, changes: CommitChanges) -> None:
        """Store all changes durably.

        Raises:
            sqlite3.Error: nothing was stored.
        """
        if not changes:
            return
        with transaction(self._db) as db:
            db.executemany(
                "INSERT OR REPLACE INTO outputs(stream,name,path,generation,size,number,offset,state,intent)"
                " VALUES(?,?,?,?,?,?,?,?,?)",
                (
                    (s, o.name, o.path, o.generation, o.size, *o.position, json.dumps(o.state), o.intent)
                    for s, o in changes.outputs
                ),
            )
            db.executemany(
                "INSERT OR REPLACE INTO runs(run,updated,live,data) VALUES(?,?,?,?)",
                ((run, updated, int(live), json.dumps(data)) for run, updated, live, data in changes.runs),
            )
            if ended := [updated for _, updated, live, _ in changes.runs if not live]:
                self._trim_runs(max(ended), TRIMMED_AT_ONCE)
            db.executemany(
                "INSERT OR REPLACE INTO jobs(stream,number,offset,kind,fields,tries) VALUES(?,?,?,?,?,?)",
                ((j.stream, *j.position, j.kind, j.fields, j.tries) for j in changes.jobs),
            )
            db.executemany(
                "DELETE FROM jobs WHERE stream=? AND number=? AND offset=?",
                ((stream, *position) for stream, position in changes.jobs_done),
            )
            db.executemany(
                "INSERT OR REPLACE INTO firings(stream,number,offset,rule,run,fields) VALUES(?,?,?,?,?,?)",
                (
                    (f.stream, f.number, f.offset, f.rule, f.run, json.dumps(f.fields))
                    for f in changes.firings[: self._room_for_firings() if changes.firings else 0]
                ),
            )
            db.executemany("INSERT OR REPLACE INTO done VALUES(?,?)", changes.done)
            db.executemany("DELETE FROM outputs WHERE stream=?", ((s,) for s in changes.forgotten))
            db.executemany("DELETE FROM done WHERE stream=?", ((s,) for s in changes.forgotten))

    def outputs_of(self, stream: str) -> dict[str, OutputRow]:
        """Durable outputs of a stream by name.

        Raises:
            RemoteProtocolError: a row is not what an agent writes.
        """
        rows = self._db.execute(
            "SELECT name,path,generation,size,number,offset,state,intent FROM outputs WHERE stream=?",
            (stream,),
        ).fetchall()  # a statement that an error cuts short would stay open, and hold up the WAL
        with making_sense(f"agent.db, of stream {stream},"):
            return {row[0]: _output_row(row) for row in rows}

    def intents(self) -> set[str]:
        """Temp files that are about to take an output's name."""
        return {name for (name,) in self._db.execute("SELECT intent FROM outputs WHERE intent<>''")}

    def jobs_of(self, stream: str) -> list[JobRow]:
        """Jobs of a stream that are not done, in their order."""
        rows = self._db.execute(
            "SELECT number,offset,kind,fields,tries FROM jobs WHERE stream=? ORDER BY number,offset",
            (stream,),
        )
        return [
            # one whose fields make no sense gets some that nobody can read: the job is dropped
            JobRow(
                stream,
                Position(n, o),
                str(kind),
                fields if isinstance(fields, bytes) else b"",
                parse_uint(tries),
            )
            for n, o, kind, fields, tries in rows
        ]

    def is_done(self, stream: str) -> bool:
        """Whether a stream was taken in to its end."""
        return self._db.execute("SELECT 1 FROM done WHERE stream=?", (stream,)).fetchone() is not None

    def runs(self) -> Iterable[dict[str, Any]]:
        """Remembered runs, newest first; none whose row makes no sense."""
        for (data,) in self._db.execute("SELECT data FROM runs ORDER BY updated DESC LIMIT ?", (KEPT_RUNS,)):
            if plain := _run_plain(data):
                yield plain

    def ended_runs(self, most: int) -> tuple[dict[str, Any], ...]:
        """The runs that ended last, newest first; none whose row makes no sense."""
        rows = self._db.execute("SELECT data FROM runs WHERE live=0 ORDER BY updated DESC LIMIT ?", (most,))
        return tuple(plain for (data,) in rows.fetchall() if (plain := _run_plain(data)))

    def run(self, run: str) -> dict[str, Any] | None:
        """One remembered run; None, too, where its row makes no sense."""
        row = self._db.execute("SELECT data FROM runs WHERE run=?", (run,)).fetchone()
        return None if row is None else _run_plain(row[0])

    def runs_since(self, updated: float) -> list[dict[str, Any]]:
        """Runs whose record was stored at or after a moment, in that order."""
        rows = self._db.execute("SELECT data FROM runs WHERE updated>=? ORDER BY updated", (updated,))
        return [plain for (data,) in rows if (plain := _run_plain(data))]

    def _room_for_firings(self) -> int:
        (stored,) = self._db.execute("SELECT count(*) FROM firings").fetchone()
        return max(0, MAX_FIRINGS - int(stored))

    def firings(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Firings that were not handed over: stream, run, and number, offset, rule with its fields."""
        rows = self._db.execute("SELECT stream,run,number,offset,rule,fields FROM firings LIMIT 1000")
        return [
            (stream, run, {**json.loads(fields), "number": number, "offset": offset, "rule": rule})
            for stream, run, number, offset, rule, fields in rows
        ]

    def drop_firings(self, told: Iterable[tuple[str, int, int, str]]) -> None:
        """Forget firings by stream, number, offset and rule."""
        with transaction(self._db) as db:
            db.executemany("DELETE FROM firings WHERE stream=? AND number=? AND offset=? AND rule=?", told)

    def drop_old_runs(self, now: float) -> None:
        """Forget ended runs beyond what is kept; `now` in Unix seconds."""
        with transaction(self._db):
            self._trim_runs(now, -1)

    def _trim_runs(self, now: float, most: int) -> None:
        self._db.execute(
            "DELETE FROM runs WHERE run IN (SELECT run FROM runs WHERE live=0 AND updated<?"
            " ORDER BY updated DESC LIMIT ? OFFSET ?)",
            (now - KEPT_RUNS_S, most, KEPT_RUNS),
        )

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


@contextmanager
def making_sense(what: str) -> Iterator[None]:
    """Context for reading `what` from a disk, in which invalid content raises an error that is not internal.

    Raises:
        RemoteProtocolError: it makes no sense.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise RemoteProtocolError(f"{what} makes no sense: {error!r}") from error


def _output_row(row: tuple[Any, ...]) -> OutputRow:
    name, path, generation, size, number, offset, state, intent = row
    numbers = [parse_uint(one, INT64) for one in (generation, size, number, offset)]
    content = json.loads(state)
    if not isinstance(content, dict) or not all(isinstance(text, str) for text in (name, path, intent)):
        raise TypeError("wrong type")
    return OutputRow(name, path, numbers[0], numbers[1], Position(numbers[2], numbers[3]), content, intent)


def _run_plain(data: str | bytes) -> dict[str, Any]:
    """A run of agent.db; empty where the row makes no sense: its streams begin a new record."""
    try:
        with making_sense("a run in agent.db"):
            plain: dict[str, Any] = json.loads(data)
            RunRecord.from_plain(plain)
            return plain
    except RemoteProtocolError as error:
        _log.warning("%s; it is passed over", error)
        return {}
