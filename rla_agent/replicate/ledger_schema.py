"""Tables of the ledger.

WAL with synchronous=NORMAL: a SIGKILL loses nothing; a power cut may lose the last transactions, and then
files are compared with the master instead of being sent again (`worker.send`). Others open it read-only
(status, verify), at any time, so a new ledger gets its name only when its tables are there.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from rla_agent.store.sqlite import Step, connect, migrate

OPEN_WAIT_S: Final = 10.0  # wait for another process's lock
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS databases(id INTEGER PRIMARY KEY, root BLOB, target TEXT, UNIQUE(root, target));
CREATE TABLE IF NOT EXISTS folders(
  id INTEGER PRIMARY KEY, db INTEGER, path BLOB, kind TEXT, item BLOB, mode INTEGER, UNIQUE(db, path));
CREATE TABLE IF NOT EXISTS files(
  folder INTEGER, name BLOB, db INTEGER, state INTEGER, prio INTEGER, pending INTEGER,
  not_before REAL, seen REAL, tries INTEGER, reason TEXT, mend TEXT, kept INTEGER DEFAULT 0, attempts TEXT,
  ino INTEGER, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, generation INTEGER,
  acked INTEGER, crc INTEGER, head_crc INTEGER, tail_crc INTEGER, sha256 BLOB, remote_mtime INTEGER,
  sent_at REAL, mode INTEGER, check_at REAL, synced INTEGER, PRIMARY KEY(folder, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS folders_item ON folders(db, item);
CREATE INDEX IF NOT EXISTS files_due ON files(db, prio, pending, not_before) WHERE state = 1;
CREATE INDEX IF NOT EXISTS files_parked ON files(db) WHERE state = 2;
CREATE INDEX IF NOT EXISTS files_dropped ON files(db) WHERE state = 6;
CREATE INDEX IF NOT EXISTS files_check ON files(db, check_at) WHERE check_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS temps(
  db INTEGER, temp BLOB, folder INTEGER, name BLOB, ino INTEGER, size INTEGER, mtime_ns INTEGER,
  ctime_ns INTEGER, acked INTEGER, synced INTEGER, PRIMARY KEY(db, temp)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items(db INTEGER, path BLOB, state TEXT, PRIMARY KEY(db, path)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contents(
  db INTEGER, sha256 BLOB, folder INTEGER, name BLOB, PRIMARY KEY(db, sha256)) WITHOUT ROWID;
"""


def ledger_path(state: Path) -> Path:
    """Path of the ledger in an agent's state folder."""
    return state / "replicate" / "ledger.db"


def open_ledger(path: Path) -> sqlite3.Connection:
    """Open the ledger, made if need be, with tables of the newest version."""
    if not path.exists():  # others read it at any time, so its tables are made before it gets its name
        new = path.with_name(f"{path.name}.new")
        for ending in ("-wal", "-shm"):  # left by a deleted ledger: SQLite would replay it over the new one
            for old in (new, path):
                old.with_name(old.name + ending).unlink(missing_ok=True)
        new.unlink(missing_ok=True)
        _set_up(new).close()
        new.replace(path)
    return _set_up(path)


def _set_up(path: Path) -> sqlite3.Connection:
    db = connect(path, STEPS, OPEN_WAIT_S)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA cache_size = -16000")
    migrate(db, path, STEPS)
    db.execute("INSERT OR IGNORE INTO meta VALUES('created', ?)", (time.time(),))
    os.chmod(path, 0o600)
    return db


OF_MOVED: Final = "reason LIKE 'moved on master%'"


# to the newest version; a change is a new one at the end
STEPS: Final[tuple[Step, ...]] = (_SCHEMA,)


def upgrade(db: sqlite3.Connection, state: Path) -> None:
    """Bring the ledger of a state folder to this release's version, over an own connection.

    Raises:
        NewerFormatError: a later release has it.
        sqlite3.Error: it cannot be written now.
    """
    migrate(db, ledger_path(state), STEPS)
