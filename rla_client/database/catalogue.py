"""Catalogue of a database's runs, a local SQLite table.

The catalogue is a cache of the files. It lies in the state folder under a hash of the data root's path and
is rebuilt whenever it is missing, broken or of another version. Every use refreshes it first:

- A *day* (`<kind>/<table>/YYYY/MM/DD`) has the same runs as long as its folder's stamp is as noted (the later
  of mtime and ctime, since a change of its mode counts); other days are listed again, over all kinds.
- A *run* has the same row as long as its signature (`change_signatures`) is as noted; other runs are read
  again, or their rows come from the lake, which keeps rows with their signatures.

Checking 10,000 signatures takes 0.1 s, so calls that need few rows (`find`, the newest fifty) refresh the
days and then check the signatures of those rows alone. Two processes may refresh at once: SQLite orders
them, and both write what the files say.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.database.change_signatures import RACY_NS, Signatures
from rla_client.database.records.record import Record, to_json
from rla_client.database.records.record_reader import read_record
from rla_client.database.records.told_fields import TOLD_FIELDS
from rla_client.database.tree.items import day_items, find_days, find_tables, tell_unread

if TYPE_CHECKING:
    from typing_extensions import Self


Progress = Callable[[int, int], None]
Signed = tuple[str, str, str, str | None]  # table, index, signature, state; "" if not settled
Seed = Callable[[Sequence[tuple[str, str, str]]], Mapping[tuple[str, str], tuple[object, ...]]]
LAYOUT = 10  # version of the SQL tables
_FIELDS = repr([(one.name, one.source) for one in TOLD_FIELDS])
VERSION = LAYOUT << 20 | zlib.crc32(_FIELDS.encode()) & 0xFFFFF  # SQLite has 31 bits for it
BUSY_S = 60.0
SEED_FROM = 200  # runs to read: starting the lake takes as long as reading so many
COMMIT_EVERY = 500  # runs; a first build that is interrupted continues from there
COLUMNS = (
    "table_name", "idx", "kinds", "opened", "host", "state", "updated", "time_step", "duration_s",
    "hyper", "metrics", "tags", "note", "problems", "parent", "tracked", "told",
    "likely", "likely_text", "display_name",
)  # fmt: skip
_HEAVY = ("hyper", "metrics")
_EMPTY = (None, "[]")
_NOT_CONTINUED = (
    "NOT EXISTS (SELECT 1 FROM runs AS later WHERE later.table_name = runs.table_name "
    "AND later.parent = runs.idx AND later.parent <> '')"
)
_ALL_RUNS = "SELECT table_name, idx, signature, state FROM runs"
_ONE = " WHERE table_name = ? AND idx = ?"
_ONE_RUN = _ALL_RUNS + _ONE
_NAMES = ", ".join((*COLUMNS, "signature"))
_ROW = f"SELECT {_NAMES} FROM runs{_ONE}"  # noqa: S608 - constants only
_UPDATE = f"UPDATE runs SET ({_NAMES}) = ({', '.join('?' * (len(COLUMNS) + 1))}){_ONE}"  # noqa: S608
_SCHEMA = """
CREATE TABLE IF NOT EXISTS days (kind TEXT, table_name TEXT, day TEXT, mtime_ns INTEGER,
    PRIMARY KEY (kind, table_name, day)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (table_name TEXT, idx TEXT, signature TEXT, kinds TEXT, opened REAL,
    host TEXT, state TEXT, updated REAL, time_step REAL, duration_s REAL, hyper TEXT,
    metrics TEXT, tags TEXT, note TEXT,
    problems TEXT, parent TEXT, tracked TEXT, told TEXT,
    likely TEXT, likely_text TEXT, display_name TEXT, PRIMARY KEY (table_name, idx)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_age ON runs (opened, idx);
CREATE INDEX IF NOT EXISTS by_parent ON runs (table_name, parent) WHERE parent <> '';
"""


def state_folder(data_root: Path) -> Path:
    """Folder on this machine for the caches of one database."""
    from rla_client.contract.agent.places import find_places

    digest = hashlib.sha256(os.fsencode(os.path.realpath(data_root))).hexdigest()[:16]
    return find_places().state / "catalogue" / digest


class Catalogue:
    """All runs of one database; see the module docstring. A context manager."""

    def __init__(self, data_root: Path, folder: Path | None = None, seed: Seed | None = None) -> None:
        """Open or create the catalogue.

        Args:
            data_root: of the database.
            folder: its folder, instead of the state folder.
            seed: takes (table, index, signature) of runs and returns the rows that it has for these.
        """
        self._root = data_root
        self._seed = seed
        self._db = _open_database(folder if folder is not None else state_folder(data_root))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def refresh(self, now_ns: int, progress: Progress | None = None) -> list[Signed]:
        """Update the whole catalogue from the files.

        Args:
            now_ns: the wall clock, Unix nanoseconds.
            progress: called with (runs read, runs to read) when many runs are read.

        Returns:
            All runs as they are now, in no order; this saves the caller a query (0.2 s for 100,000 runs).
        """
        self.refresh_names(now_ns)
        settled, changed = self._read_changed(self._db.execute(_ALL_RUNS), now_ns, progress)
        return settled + [row for run in changed for row in self._db.execute(_ONE_RUN, run)]

    def refresh_newest(
        self,
        now_ns: int,
        progress: Progress | None = None,
        *,
        limit: int,
        table: str | None = None,
        since: float | None = None,
    ) -> None:
        """Update the list of runs, and from the files the rows that `records` gives for these arguments."""
        self.refresh_names(now_ns)
        self._read_changed(self._db.execute(_ALL_RUNS + " WHERE opened IS NULL"), now_ns, progress)
        where, values = _condition(table, since)
        newest = f"{_ALL_RUNS} {where} ORDER BY opened DESC, idx DESC LIMIT ?"
        self._read_changed(self._db.execute(newest, [*values, limit]), now_ns, progress)

    def refresh_run(self, table: str, index: str, now_ns: int) -> None:
        """Update one row that `names` lists from the files."""
        self._read_changed(self._db.execute(_ONE_RUN, (table, index)), now_ns, None)

    def refresh_names(self, now_ns: int) -> None:
        """Update the list of runs, without checking the known ones for changes."""
        found = dict(self._scan_days())
        known = {
            (kind, table, day): stamp
            for kind, table, day, stamp in self._db.execute(
                "SELECT kind, table_name, day, mtime_ns FROM days"
            )
        }
        changed = {key[1:] for key in found.keys() | known.keys() if found.get(key) != known.get(key)}
        if changed:
            closed: list[str] = []
            with self._db:
                for table, day in changed:
                    self._list_day(table, day, closed)
                for folder in closed:  # opening it later leaves its stamp: list it again
                    kind, *table, year, month, day = os.path.relpath(folder, self._root).split("/")
                    found[kind, "/".join(table), f"{year}/{month}/{day}"] = -1
                self._note_days(found, known, now_ns)

    def _scan_days(self) -> Iterator[tuple[tuple[str, str, str], int]]:
        for kind in DEFAULT_LOG_TYPES:
            for table in find_tables(self._root, (kind,)):
                for day in find_days(self._root, kind, table):
                    try:
                        found = os.stat(f"{self._root}/{kind}/{table}/{day}")
                    except (FileNotFoundError, NotADirectoryError):
                        continue
                    except OSError as error:
                        tell_unread(error)
                        continue
                    yield (kind, table, day), max(found.st_mtime_ns, found.st_ctime_ns)

    def _list_day(self, table: str, day: str, closed: list[str]) -> None:
        kinds: dict[str, list[str]] = {}
        for kind in DEFAULT_LOG_TYPES:
            for item in day_items(self._root, kind, table, day, closed):
                kinds.setdefault(item.index, []).append(kind)
        low, high = f"{day}/", f"{day}0"  # "0" follows "/" in ASCII
        known = dict(
            self._db.execute(
                "SELECT idx, kinds FROM runs WHERE table_name = ? AND idx > ? AND idx < ?", (table, low, high)
            )
        )
        gone = [(table, index) for index in known if index not in kinds]
        self._db.executemany("DELETE FROM runs WHERE table_name = ? AND idx = ?", gone)
        fresh = [
            (table, index, " ".join(names))
            for index, names in kinds.items()
            if known.get(index) != " ".join(names)
        ]
        self._db.executemany(
            "INSERT OR REPLACE INTO runs (table_name, idx, kinds, signature) VALUES (?, ?, ?, '')", fresh
        )

    def _note_days(
        self, found: dict[tuple[str, str, str], int], known: dict[tuple[str, str, str], int], now_ns: int
    ) -> None:
        self._db.executemany(
            "DELETE FROM days WHERE kind = ? AND table_name = ? AND day = ?",
            [key for key in known if key not in found],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO days VALUES (?, ?, ?, ?)",
            [
                (*key, stamp if now_ns - stamp > RACY_NS else -1)
                for key, stamp in found.items()
                if known.get(key) != stamp
            ],
        )

    def _read_changed(
        self, runs: Iterable[Signed], now_ns: int, progress: Progress | None
    ) -> tuple[list[Signed], list[tuple[str, str]]]:
        """Read runs with a changed signature again; returns unchanged runs, and names of the others."""
        settled: list[Signed] = []
        changed = []
        with Signatures(self._root, now_ns) as signatures:
            for run in runs:
                current = signatures.of(run[0], run[1], run[2])
                if current and current == run[2]:
                    settled.append(run)
                else:
                    changed.append((run[0], run[1], current))
        todo = self._take_seed([(*run, self._kinds(*run[:2])) for run in changed])
        for start in range(0, len(todo), COMMIT_EVERY):
            batch = todo[start : start + COMMIT_EVERY]
            if progress is not None:
                progress(start, len(todo))
            self._update(
                [
                    (*catalogue_row(self._root, table, index, tuple(kinds.split())), signature)
                    for table, index, signature, kinds in batch
                ]
            )
        return settled, [run[:2] for run in changed]

    def _kinds(self, table: str, index: str) -> str:
        found = self._db.execute(f"SELECT kinds FROM runs{_ONE}", (table, index)).fetchone()  # noqa: S608
        return "" if found is None else str(found[0])

    def _take_seed(self, todo: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
        """Take rows from the lake where it has them; returns the runs that remain to be read."""
        if self._seed is None or len(todo) < SEED_FROM:
            return todo
        known = self._seed([entry[:3] for entry in todo])
        if known:
            kinds = COLUMNS.index("kinds")
            taken = [(entry, known[entry[:2]]) for entry in todo if entry[:2] in known]
            self._update([(*row[:kinds], entry[3], *row[kinds + 1 :], entry[2]) for entry, row in taken])
        return [entry for entry in todo if entry[:2] not in known]

    def _update(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Replace the rows of the same names by these, each followed by its signature."""
        with self._db:  # no INSERT: a run that another process has removed must not come back
            self._db.executemany(_UPDATE, [(*row, row[0], row[1]) for row in rows])

    def row(self, table: str, index: str) -> tuple[tuple[Any, ...], str] | None:
        """One stored row, in the order of `COLUMNS`, and its signature."""
        found = self._db.execute(_ROW, (table, index)).fetchone()
        return None if found is None else (found[:-1], found[-1])

    def records(
        self,
        table: str | None = None,
        *,
        since: float | None = None,
        limit: int | None = None,
        light: bool = False,
    ) -> list[Record]:
        """Rows as of the last refresh, oldest first; see `rows`."""
        return list(map(record_of, self.rows(table, since=since, limit=limit, light=light)))

    def rows(
        self,
        table: str | None = None,
        *,
        since: float | None = None,
        limit: int | None = None,
        light: bool = False,
    ) -> list[tuple[Any, ...]]:
        """Rows for `record_of`, oldest first; a chain has one row, that of its newest item.

        Args:
            table: only this task table.
            since: only runs that began at or after these Unix seconds.
            limit: only the newest so many.
            light: leave out hyper-parameters and metrics, most of the bytes.
        """
        where, values = _condition(table, since)
        names = ", ".join("NULL" if light and name in _HEAVY else name for name in COLUMNS)
        sql = f"SELECT {names} FROM runs {where} ORDER BY opened DESC, idx DESC"  # noqa: S608 - constants only
        if limit is not None:
            sql += " LIMIT ?"
            values.append(limit)
        return self._db.execute(sql, values).fetchall()[::-1]

    def texts(self, table: str | None, *, since: float | None) -> list[tuple[str, str, str, str]]:
        """Table, index, hyper-parameters, metrics (JSON) of the rows that `rows` gives, in the same order."""
        where, values = _condition(table, since)
        sql = f"SELECT table_name, idx, hyper, metrics FROM runs {where} ORDER BY opened, idx"  # noqa: S608
        return self._db.execute(sql, values).fetchall()

    def chosen(self, keys: Sequence[tuple[str, str]]) -> list[Record]:
        """Records of runs by (table, index), in this order; a run that no longer exists is left out."""
        rows = (self.row(*key) for key in keys)
        return [record_of(row[0]) for row in rows if row is not None]

    def count(self, table: str | None = None, *, since: float | None = None) -> int:
        """Number of rows that `records` gives without limit."""
        where, values = _condition(table, since)
        return int(self._db.execute(f"SELECT count(*) FROM runs {where}", values).fetchone()[0])  # noqa: S608

    def names(self, table: str | None = None) -> list[tuple[str, str]]:
        """(table, index) of all runs, oldest first; every item of a chain counts."""
        where, values = _condition(table, None, ends_of_chains=False)
        return list(
            self._db.execute(f"SELECT table_name, idx FROM runs {where} ORDER BY opened, idx", values)  # noqa: S608
        )

    def links(self) -> dict[tuple[str, str], str]:
        """(table, index) → index of the run that it continues."""
        rows = self._db.execute("SELECT table_name, idx, parent FROM runs WHERE parent <> ''")
        return {(table, index): parent for table, index, parent in rows}

    def record(self, table: str, index: str) -> Record:
        """Record of one run.

        Raises:
            DatabaseError: the catalogue has no such run.
        """
        row = self.row(table, index)
        if row is None:
            message = f"there is no run {index} in table {table}"
            raise DatabaseError(message)
        return record_of(row[0])


def catalogue_row(root: Path, table: str, index: str, kinds: tuple[str, ...]) -> tuple[object, ...]:
    """Row of a run, in the order of `COLUMNS`, read from its files."""
    record = read_record(root, table, index, kinds)
    row = (
        table, index, " ".join(kinds), record.opened, record.host, record.state, record.updated,
        record.time_step, record.duration_s, record.hyper_json, record.metrics_json, to_json(record.tags),
        record.note, to_json(record.problems), record.parent, record.tracked_json, record.told_json,
        record.likely, record.likely_text, record.display_name,
    )  # fmt: skip
    return tuple(_storable(value) if isinstance(value, str) else value for value in row)


def _storable(text: str) -> str:
    """A text that SQLite accepts: JSON may hold lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _condition(
    table: str | None, since: float | None, *, ends_of_chains: bool = True
) -> tuple[str, list[object]]:
    terms: list[str] = [_NOT_CONTINUED] if ends_of_chains else []
    values: list[object] = []
    if table is not None:
        terms.append("table_name = ?")
        values.append(table)
    if since is not None:
        terms.append("opened >= ?")
        values.append(since)
    return (f"WHERE {' AND '.join(terms)}" if terms else ""), values


def record_of(row: tuple[Any, ...]) -> Record:
    """Record of a row in the order of `COLUMNS`."""
    (
        table, index, kinds, opened, host, state, updated, step, duration, hyper, metrics, tags, note,
        problems, parent, tracked, told, likely, likely_text, display_name,
    ) = row  # fmt: skip
    return Record(
        table, index, tuple(kinds.split()), opened or 0.0, host or "", state, updated, step, duration,
        hyper or "{}", metrics or "{}", () if tags in _EMPTY else tuple(json.loads(tags)), note or "",
        () if problems in _EMPTY else tuple(json.loads(problems)), parent or "", tracked or "", told or "{}",
        likely or "", likely_text or "", display_name or "",
    )  # fmt: skip


def _open_database(folder: Path) -> sqlite3.Connection:
    """Open, create or recreate the file; in memory if the folder cannot be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return _prepare(":memory:")
    path = folder / "catalogue.db"
    try:
        return _prepare(str(path))
    except sqlite3.OperationalError:
        return _prepare(":memory:")
    except sqlite3.DatabaseError:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{path}{suffix}")
        return _prepare(str(path))


def _prepare(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # it can be rebuilt
        if version != VERSION:
            _make_tables(connection)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    """Recreate the tables in one transaction, unless another process has done so in the meantime."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
            return
        for statement in ("DROP TABLE IF EXISTS days", "DROP TABLE IF EXISTS runs", *_SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
