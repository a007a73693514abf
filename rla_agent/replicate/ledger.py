"""Ledger of the files that are on the master.

SQLite, one writer. `folders` names each folder once; `files` has one row per file (a million are about 200
MB on disk). `temps` are the temp names in use on the master, noted before the first byte goes there.
`items` are the item folders that we made there: `made`, `moved` (missing since; files for them are parked) or
`again` (a user asked to have it made again). `contents` has, by SHA-256, one code file that is there, for
links.

`check_at` (Unix seconds) of a file says when it is checked on the master again, because acknowledged bytes
may be in the master's memory only; NULL: it is confirmed, and `prune` may rely on it. `synced`: it is on the
master's disk, which confirms it after `CONFIRM_S` in which no connection ended (`worker.confirm`). A damaged
ledger is put aside.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from rla_agent.replicate.backend.remote_stat import RemoteStat, Twin
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger_rows import (
    BURIED,
    DROPPED,
    GONE,
    PRUNED,
    RECORD_COLUMNS,
    Drop,
    Due,
    Key,
    LedgerFile,
    SendAttempt,
    Temp,
    Unconfirmed,
    due_of,
    record_of,
)
from rla_agent.replicate.ledger_schema import OF_MOVED, open_ledger
from rla_agent.store.sqlite import open_or_replace
from rla_client.contract.errors import RlaError
from rla_client.contract.item.prune_notes import PrunedFile
from rla_client.contract.layout import ARCHIVE_TESTER, FOLDER_KINDS, PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import OWN_FOLDER, WHOLE_NAME

ARCHIVE_ENDINGS: Final = (b".json", b".pt", b".pkl")  # of one item's archive_tester files
CONFIRM_S: Final = 300.0  # a kernel writes dirty pages within half a minute, a disk its cache
_MAKING: Final = os.fsencode(f"/{PARTS_FOLDER}/")
_OWN: Final = os.fsencode(f"/{OWN_FOLDER}")
MAX_ATTEMPTS: Final = 8  # remembered attempts on one file whose outcome is unknown


class Ledger:
    """The ledger, for reads and writes of one thread. Changes are committed by `commit`.

    Attributes:
        put_aside: where a damaged earlier ledger was moved; empty: there was none.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._db, self.put_aside = open_or_replace(path, open_ledger)
        except sqlite3.OperationalError as error:  # locked, or no space: no reason to begin a new one
            message = f"the ledger {path} cannot be opened: {error}; retrying"
            raise RlaError(message) from error
        self._folders: dict[tuple[int, bytes], int] = {}
        self._db.execute("UPDATE files SET not_before = 0 WHERE state IN (1, 6) AND not_before <> 0")

    def close(self) -> None:
        """Commit and close."""
        self.commit()
        self._db.close()

    def commit(self) -> None:
        """Make changes visible and safe from SIGKILL."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def _write(self, statement: str, *values: object) -> sqlite3.Cursor:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
        return self._db.execute(statement, values)

    def _row(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._db.execute(statement, values).fetchone()
        return found

    def database(self, root: bytes, target: str) -> int:
        """Number of a data root at a target."""
        self._write("INSERT OR IGNORE INTO databases(root, target) VALUES(?, ?)", root, target)
        number = database_number(self._db, root, target)
        assert number is not None
        return number

    def folder(self, db: int, path: bytes, kind: str, item: bytes) -> int:
        """Number of a folder, made on first use."""
        number = self._folders.get((db, path))
        if number is not None:
            return number
        row = self._row("SELECT id FROM folders WHERE db = ? AND path = ?", db, path)
        if row is None:
            statement = "INSERT INTO folders(db, path, kind, item) VALUES(?, ?, ?, ?)"
            row = (self._write(statement, db, path, kind, item).lastrowid,)
        if len(self._folders) > 20_000:  # noqa: PLR2004 - a cache; a few MB
            self._folders.clear()
        self._folders[db, path] = int(row[0])
        return int(row[0])

    def making_folders(self, db: int) -> list[tuple[bytes, bytes]]:
        """Folders of sharded checkpoints in the making, each with its item's."""
        query = "SELECT path, item FROM folders WHERE db = ? AND instr(path, ?) > 0"
        rows = self._db.execute(query, (db, _MAKING)).fetchall()
        return [(path, item) for path, item in rows if not path.endswith(_OWN)]

    def forget_folder(self, db: int, path: bytes) -> None:
        """Delete the row of a folder that is gone for good and has no files in the ledger."""
        self._folders.pop((db, path), None)
        self._write("DELETE FROM folders WHERE db = ? AND path = ?", db, path)

    def folder_mode(self, folder: int) -> int | None:
        """Permission bits that the master's folder was given; None: none yet."""
        row = self._row("SELECT mode FROM folders WHERE id = ?", folder)
        return None if row is None else row[0]

    def set_folder_mode(self, folder: int, mode: int) -> None:
        """Store the permission bits that the master's folder was given."""
        self._write("UPDATE folders SET mode = ? WHERE id = ?", mode, folder)

    def states(self, db: int, path: bytes) -> dict[bytes, tuple[int, ...]]:
        """Name → (state, ino, size, mtime_ns, ctime_ns, acked, mode) of a folder's files."""
        return folder_states(self._db, db, path)

    def mark(self, key: Key, db: int, prio: int, pending: int, seen: float) -> None:
        """Mark a file as new or changed."""
        self._write(
            "INSERT INTO files(folder, name, db, state, prio, pending, not_before, seen, tries) "
            "VALUES(?, ?, ?, 1, ?, ?, 0, ?, 0) ON CONFLICT DO UPDATE SET prio = excluded.prio, "
            "pending = excluded.pending, seen = CASE state WHEN 1 THEN seen ELSE excluded.seen END, "
            "not_before = CASE state WHEN 1 THEN not_before ELSE 0 END, "
            "tries = CASE state WHEN 1 THEN tries ELSE 0 END, state = 1 WHERE state IN (0, 1, 3, 5, 6)",
            *(*key, db, prio, pending, seen),
        )

    def due(self, db: int, now: float, prios: tuple[int, int], limit: int) -> list[Due]:
        """Files to send, most urgent and smallest first; `prios` is the range, both included."""
        rows = self._db.execute(
            "SELECT f.folder, f.name, d.path, d.kind, d.item, i.state IN ('made', 'moved'), f.pending, "  # noqa: S608
            f"f.tries, f.kept, f.seen, f.attempts, {RECORD_COLUMNS} FROM files f "
            "JOIN folders d ON d.id = f.folder LEFT JOIN items i ON i.db = f.db AND i.path = d.item "
            "WHERE f.db = ? AND f.state = 1 AND f.prio BETWEEN ? AND ? AND f.not_before <= ? "
            "ORDER BY f.prio, f.pending LIMIT ?",
            (db, *prios, now, limit),
        )
        return [due_of(row) for row in rows]

    def waits(self, key: Key) -> bool:
        """Whether a file is still to be sent, perhaps only after somebody has acted."""
        query = "SELECT 1 FROM files WHERE folder = ? AND name = ? AND state IN (1, 2)"
        return self._row(query, *key) is not None

    def any_due(self, db: int) -> bool:
        """Whether anything waits."""
        return self._row("SELECT 1 FROM files WHERE db = ? AND state = 1 LIMIT 1", db) is not None

    def backlog(self, db: int) -> dict[str, int]:
        """Files and bytes that wait."""
        row = self._row("SELECT count(*), sum(pending) FROM files WHERE db = ? AND state = 1", db)
        files, size = row or (0, 0)
        return {"files": int(files), "bytes": int(size or 0)}

    def record(self, key: Key) -> SentRecord | None:
        """The record of the file on the master."""
        statement = f"SELECT {RECORD_COLUMNS} FROM files f WHERE folder = ? AND name = ?"  # noqa: S608 - constants
        row = self._row(statement, *key)
        return None if row is None else record_of(row)

    def sent(self, key: Key, record: SentRecord, now: float) -> None:
        """Store the record of a file that was sent."""
        sums = (record.crc, record.head_crc, record.tail_crc, record.sha256)
        self._write(
            "UPDATE files SET state = 0, pending = 0, tries = 0, reason = NULL, mend = NULL, ino = ?, "
            "size = ?, mtime_ns = ?, ctime_ns = ?, mode = ?, generation = ?, acked = ?, crc = ?, "
            "head_crc = ?, tail_crc = ?, sha256 = ?, remote_mtime = ?, sent_at = ?, attempts = NULL "
            "WHERE folder = ? AND name = ?",
            *(*record.local.version, record.local.mode, record.generation, record.acked),
            *(*sums, record.remote_mtime_s, now, *key),
        )

    def acknowledged(self, key: Key, check_at: float, *, synced: bool) -> None:
        """Schedule the check of a file that was just sent."""
        statement = "UPDATE files SET check_at = ?, synced = ? WHERE folder = ? AND name = ?"
        self._write(statement, check_at, int(synced), *key)

    def set_synced(self, key: Key, acked: int) -> None:
        """Note that a file's first `acked` bytes are on the master's disk, unless more was sent since."""
        statement = "UPDATE files SET synced = 1 WHERE folder = ? AND name = ? AND acked = ?"
        self._write(statement, *key, acked)

    def confirm(self, key: Key, sent_at: float, check_at: float | None = None) -> None:
        """Note that a file is on the master as it was sent; `check_at`: it is to be checked again."""
        statement = (
            "UPDATE files SET check_at = ? WHERE folder = ? AND name = ? AND COALESCE(sent_at, 0.0) = ?"
        )
        self._write(statement, check_at, *key, sent_at)

    def confirm_synced(self, db: int, now: float, since: float) -> None:
        """Confirm files that were synced, sent after `since` and due."""
        self._write(
            "UPDATE files SET check_at = NULL WHERE db = ? AND check_at > 0 AND check_at <= ? "
            "AND synced = 1 AND sent_at > ?",
            *(db, now, since),
        )

    def confirm_all(self, db: int) -> None:
        """Confirm everything, for a master whose acknowledgements are durable."""
        self._write("UPDATE files SET check_at = NULL WHERE db = ? AND check_at IS NOT NULL", db)

    def doubt(self, db: int) -> None:
        """Make the checks of all unconfirmed files due now."""
        self._write("UPDATE files SET check_at = 0 WHERE db = ? AND check_at > 0", db)

    def unconfirmed(self, db: int, now: float, limit: int) -> list[Unconfirmed]:
        """Files to check, the longest waiting first; none that is to be replaced or deleted anyway."""
        rows = self._db.execute(
            "SELECT f.folder, f.name, d.path, d.kind, d.item, f.state, f.sent_at, "  # noqa: S608 - constants
            f"{RECORD_COLUMNS} FROM files f JOIN folders d ON d.id = f.folder "
            "WHERE f.db = ? AND f.check_at <= ? ORDER BY f.check_at LIMIT ?",
            (db, now, limit),
        ).fetchall()
        found = []
        for row in rows:
            key, record = Key(row[0], row[1]), record_of(row[7:])
            state = row[5]
            if record is None or record.generation < 0 or state in {BURIED, DROPPED}:
                self._write("UPDATE files SET check_at = NULL WHERE folder = ? AND name = ?", *key)
            else:
                path = row[2] + b"/" + row[1]
                here, sent_at = state < GONE, row[6] or 0.0
                found.append(Unconfirmed(key, path, row[3], row[4], here, sent_at, record))
        return found

    def any_unconfirmed(self, db: int, now: float) -> bool:
        """Whether a check is due."""
        return self._row("SELECT 1 FROM files WHERE db = ? AND check_at <= ? LIMIT 1", db, now) is not None

    def lost(self, key: Key, prio: int) -> bool:
        """Reset a sent file that the master has lost. False: it is not to be sent there any more."""
        self._drop_content(key)
        changed = self._write(
            "UPDATE files SET state = 1, prio = ?, pending = COALESCE(size, 0), not_before = 0, tries = 0, "
            "acked = NULL, ino = NULL, check_at = NULL, synced = 0, attempts = NULL "
            "WHERE folder = ? AND name = ? AND state < 3",
            *(prio, *key),
        )
        return bool(changed.rowcount)

    def _drop_content(self, key: Key) -> None:
        """Stop linking files to this one."""
        self._write("DELETE FROM contents WHERE folder = ? AND name = ?", *key)

    def forget_lost_item(self, db: int, item: bytes) -> None:
        """Drop a missing item folder of which nothing was ever confirmed, so that it may be made again."""
        gone = self._write(
            "DELETE FROM items WHERE db = ? AND path = ? AND state <> 'again' AND NOT EXISTS (SELECT 1 FROM "
            "folders d JOIN files f ON f.folder = d.id WHERE d.db = items.db AND d.item = items.path "
            "AND f.acked IS NOT NULL AND (f.check_at IS NULL OR f.synced = 1))",
            *(db, item),
        )
        if gone.rowcount:
            self._unpark_moved(db, item)

    def add_content(self, db: int, sha256: bytes, key: Key) -> None:
        """Register a file on the master to which files of the same content may be linked."""
        self._write("INSERT OR REPLACE INTO contents VALUES(?, ?, ?, ?)", db, sha256, *key)

    def twin(self, db: int, sha256: bytes) -> Twin | None:
        """A file of this content on the master, as it was sent; None without one."""
        row = self._db.execute(
            "SELECT d.path, f.name, f.acked, f.remote_mtime FROM contents c "
            "JOIN files f ON f.folder = c.folder AND f.name = c.name JOIN folders d ON d.id = c.folder "
            "WHERE c.db = ? AND c.sha256 = ? AND f.sha256 = c.sha256 AND f.state IN (0, 3, 5) "
            "AND f.acked IS NOT NULL",
            (db, sha256),
        ).fetchone()
        return None if row is None else Twin(row[0] + b"/" + row[1], RemoteStat(row[2], row[3]), sha256)

    def attempt(self, due: Due, new: tuple[SendAttempt, ...]) -> None:
        """Note, before the first byte is sent, what an attempt may leave on the master."""
        attempts = (*(old for old in due.attempts if old not in new), *new)[-MAX_ATTEMPTS:]
        text = json.dumps([(old.size, old.mtime_s) for old in attempts])
        self._write("UPDATE files SET attempts = ? WHERE folder = ? AND name = ?", text, *due.key)

    def retry_at(self, key: Key, not_before: float, *, failed: bool, reason: str = "") -> None:
        """Delay a waiting file until `not_before`."""
        self._write(
            "UPDATE files SET not_before = ?, tries = tries + ?, reason = ? "
            "WHERE folder = ? AND name = ? AND state = 1",
            *(not_before, int(failed), reason or None, *key),
        )

    def set_state(self, key: Key, state: int, reason: str = "", fix: str = "") -> None:
        """Set a file's state: parked, gone, or without anything to send."""
        statement = "UPDATE files SET state = ?, reason = ?, mend = ? WHERE folder = ? AND name = ?"
        self._write(statement, state, reason or None, fix or None, *key)

    def dropped(self, db: int, now: float, limit: int) -> list[Drop]:
        """Files whose copies are to be deleted on the master; `whole.json` files first."""
        rows = self._db.execute(
            "SELECT f.folder, f.name, d.path, f.acked, f.remote_mtime, f.sha256 FROM files f "
            "JOIN folders d ON d.id = f.folder WHERE f.db = ? AND f.state = 6 AND f.not_before <= ? "
            "ORDER BY f.name != ? LIMIT ?",
            (db, now, os.fsencode(WHOLE_NAME), limit),
        )
        return [Drop(Key(r[0], r[1]), r[2] + b"/" + r[1], RemoteStat(r[3], r[4]), r[5]) for r in rows]

    def drop_ended(self, key: Key, again: float | None) -> None:
        """Note that the master's copy of a dropped file is gone; `again`: when to retry where it is not."""
        where = "WHERE folder = ? AND name = ? AND state = 6"  # not one that was saved anew meanwhile
        if again is None:
            self._write(f"DELETE FROM files {where}", *key)  # noqa: S608 - a constant
        else:
            self._write(f"UPDATE files SET not_before = ? {where}", again, *key)  # noqa: S608

    def assume_arrived(self, key: Key) -> bool:
        """Record the last attempt of unknown outcome as what the master has; False: there is none."""
        row = self._row(
            "SELECT attempts FROM files WHERE folder = ? AND name = ? AND acked IS NULL "
            "AND attempts IS NOT NULL",
            *key,
        )
        if row is None:
            return False
        size, mtime_s = json.loads(row[0])[-1]
        self._write(
            "UPDATE files SET acked = ?, remote_mtime = ?, attempts = NULL WHERE folder = ? AND name = ?",
            *(size, mtime_s, *key),
        )
        return True

    def forget(self, key: Key) -> None:
        """Drop a file that was never sent."""
        self._write("DELETE FROM files WHERE folder = ? AND name = ?", *key)

    def move(self, key: Key, new: Key) -> None:
        """Rename a file that has another name now, here and on the master."""
        self._write("UPDATE files SET folder = ?, name = ? WHERE folder = ? AND name = ?", *new, *key)

    def add_pruned(self, key: Key, db: int, note: PrunedFile) -> None:
        """Add a file that the master has and that was not sent from here."""
        self._write(
            "INSERT OR IGNORE INTO files(folder, name, db, state, prio, pending, not_before, seen, tries, "
            "ino, size, mtime_ns, ctime_ns, mode, generation, acked, crc, head_crc, tail_crc, sha256, "
            "remote_mtime, sent_at) VALUES(?, ?, ?, ?, 0, 0, 0, 0, 0, 0, ?, ?, 0, ?, 0, ?, 0, 0, 0, ?, ?, ?)",
            *(*key, db, PRUNED, note.size, note.mtime_ns, note.mode, note.size),
            *(bytes.fromhex(note.sha256), note.mtime_ns // 10**9, note.pruned_at),
        )

    def forget_copy(self, key: Key) -> None:
        """Reset a file whose copy on the master was moved aside or is gone."""
        self._write(
            "UPDATE files SET acked = NULL, kept = kept + 1, ino = NULL WHERE folder = ? AND name = ?", *key
        )

    def add_temps(self, db: int, temps: Iterable[Temp]) -> None:
        """Note temp names before they are used."""
        statement = "INSERT OR REPLACE INTO temps VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        for temp in temps:
            self._write(statement, db, temp.temp, *temp.key, *temp.local.version, temp.acked, temp.synced)

    def drop_temps(self, db: int, temps: Iterable[bytes]) -> None:
        """Drop temp names that are no longer on the master."""
        for temp in temps:
            self._write("DELETE FROM temps WHERE db = ? AND temp = ?", db, temp)

    def temp_progress(self, db: int, temp: bytes, acked: int, synced: int) -> None:
        """Store how much of a temp file is on the master, and how much of that on its disk."""
        self._write(
            "UPDATE temps SET acked = ?, synced = ? WHERE db = ? AND temp = ?", acked, synced, db, temp
        )

    def temps(self, db: int) -> list[Temp]:
        """All temp names in use."""
        rows = self._db.execute(
            "SELECT temp, folder, name, ino, size, mtime_ns, ctime_ns, acked, synced FROM temps WHERE db = ?",
            (db,),
        )
        return [Temp(r[0], Key(r[1], r[2]), Local(*r[3:7]), r[7], r[8] or 0) for r in rows]

    def made_item(self, db: int, path: bytes) -> None:
        """Note that an item folder was made on the master."""
        self._write("INSERT OR REPLACE INTO items VALUES(?, ?, 'made')", db, path)

    def moved_items(self, db: int, after: bytes, limit: int) -> list[bytes]:
        """Item folders that were missing when something was to be sent into them; sorted, behind `after`."""
        rows = self._db.execute(
            "SELECT path FROM items WHERE db = ? AND state = 'moved' AND path > ? ORDER BY path LIMIT ?",
            (db, after, limit),
        )
        return [row[0] for row in rows]

    def returned(self, db: int, item: bytes) -> None:
        """Note that an item folder is back: unpark its files, and check those that are in it."""
        self._write("UPDATE items SET state = 'made' WHERE db = ? AND path = ? AND state = 'moved'", db, item)
        self._unpark_moved(db, item)
        self._doubt_item(db, item)

    def _unpark_moved(self, db: int, item: bytes) -> None:
        """Unpark files of an item that were parked because its folder was missing."""
        self._write(
            "UPDATE files SET state = 1, tries = 0, not_before = 0, reason = NULL, mend = NULL "  # noqa: S608 - a constant
            f"WHERE state = 2 AND {OF_MOVED} AND folder IN "
            "(SELECT id FROM folders WHERE db = ? AND item = ?)",
            *(db, item),
        )

    def _doubt_item(self, db: int, item: bytes) -> None:
        """Make the checks of an item's files due."""
        self._write(
            "UPDATE files SET check_at = 0 WHERE acked IS NOT NULL AND state < 2 AND folder IN "
            "(SELECT id FROM folders WHERE db = ? AND item = ?)",
            *(db, item),
        )

    def made_any(self, db: int) -> bool:
        """Whether an item folder was made on the master."""
        return self._row("SELECT 1 FROM items WHERE db = ? LIMIT 1", db) is not None

    def park_item(self, db: int, item: bytes, reason: str, fix: str) -> None:
        """Park all waiting files of an item folder."""
        self._write(
            "UPDATE files SET state = 2, reason = ?, mend = ? WHERE state = 1 AND folder IN "
            "(SELECT id FROM folders WHERE db = ? AND item = ?)",
            *(reason, fix, db, item),
        )
        self._write("UPDATE items SET state = 'moved' WHERE db = ? AND path = ?", db, item)

    def bury(self, db: int, subject: bytes) -> None:
        """Stop sending an item that was deleted on the master on purpose."""
        statement, values = burial(db, subject)
        self._write(statement, *values)

    def item_files(self, db: int, item: str) -> list[LedgerFile]:
        """All files of an item (`table/YYYY/MM/DD/name`), of all kinds, that are here or were pruned.

        Files of checkpoints in the making are left out.
        """
        items = [os.fsencode(f"{kind}/{item}") for kind in FOLDER_KINDS]
        rows = self._db.execute(
            f"SELECT f.folder, f.name, d.path, f.state = 1, {RECORD_COLUMNS} FROM folders d "  # noqa: S608 - constants
            "JOIN files f ON f.folder = d.id WHERE d.db = ? AND f.state IN (0, 1, 5) AND d.item IN "
            f"({', '.join('?' * len(items))}) AND instr(d.path, ?) = 0",
            (db, *items, _MAKING),
        )
        return [LedgerFile(Key(r[0], r[1]), r[2] + b"/" + r[1], bool(r[3]), record_of(r[4:])) for r in rows]

    def send_anew(self, key: Key) -> bool:
        """Send a file again, for the master's copy is wrong. False: it is not to be sent there any more."""
        self._drop_content(key)
        changed = self._write(
            "UPDATE files SET state = 1, pending = COALESCE(size, 0), not_before = 0, tries = 0, crc = 0, "
            "sha256 = NULL, generation = -1, check_at = NULL WHERE folder = ? AND name = ? AND state < 3",
            *key,
        )
        return bool(changed.rowcount)

    def set_sha(self, key: Key, sha: bytes) -> None:
        """Store the SHA-256 of the master's copy."""
        self._write("UPDATE files SET sha256 = ? WHERE folder = ? AND name = ?", sha, *key)

    def unpark(self) -> None:
        """Unpark everything; items that were moved on the master are sent there again."""
        rows = self._db.execute("SELECT db, path FROM items WHERE state = 'moved'").fetchall()
        for db, item in rows:
            self._doubt_item(db, item)
        self._write("UPDATE items SET state = 'again' WHERE state = 'moved'")
        self._write("UPDATE files SET state = 1, tries = 0, not_before = 0 WHERE state IN (2, 4)")
        self._write("DELETE FROM meta WHERE name LIKE 'lost:%'")

    def set_meta(self, name: str, value: str | float) -> None:
        """Store a fact for `status`."""
        self._write("INSERT OR REPLACE INTO meta VALUES(?, ?)", name, value)


def database_number(db: sqlite3.Connection, root: bytes, target: str) -> int | None:
    """Number of a data root at a target; None where nothing of it was sent there."""
    row = db.execute("SELECT id FROM databases WHERE root = ? AND target = ?", (root, target)).fetchone()
    return None if row is None else int(row[0])


def folder_states(db: sqlite3.Connection, number: int, path: bytes) -> dict[bytes, tuple[int, ...]]:
    """Name → (state, ino, size, mtime_ns, ctime_ns, acked, mode) of the files of a folder of a database."""
    rows = db.execute(
        "SELECT name, state, ino, size, mtime_ns, ctime_ns, acked, mode FROM files WHERE folder = "
        "(SELECT id FROM folders WHERE db = ? AND path = ?)",
        (number, path),
    )
    return {row[0]: row[1:] for row in rows}


def burial(number: int, subject: bytes) -> tuple[str, tuple[object, ...]]:
    """The SQL statement, with its values, that stops sending a deleted item.

    Args:
        number: of the database.
        subject: see `tombstones.subject_of`.
    """
    folder, _, stem = subject.rpartition(b"/")
    buried = "UPDATE files SET state = ?, reason = NULL, mend = NULL WHERE folder"
    if not subject.startswith((ARCHIVE_TESTER.encode() + b"/", b"arc/" + ARCHIVE_TESTER.encode() + b"/")):
        statement = f"{buried} IN (SELECT id FROM folders WHERE db = ? AND item = ?)"  # noqa: S608 - constants
        return statement, (BURIED, number, subject)
    names = [stem, *(stem + ending for ending in ARCHIVE_ENDINGS)]
    of_folder = "(SELECT id FROM folders WHERE db = ? AND path = ?)"
    statement = f"{buried} = {of_folder} AND name IN ({', '.join('?' * len(names))})"
    return statement, (BURIED, number, folder, *names)
