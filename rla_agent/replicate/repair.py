"""Repair of faults that a verification found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.verify import Difference

if TYPE_CHECKING:
    import sqlite3


def repair(db: sqlite3.Connection, faults: list[Difference]) -> int:
    """Have the replicator send faulty files again; returns how many are still here.

    A damaged file that nobody has edited is replaced. Any other is moved aside by the sender (`.kept-…`), for
    it may be somebody's work. No new link is made to a file of such content.
    """
    count = 0
    for fault in faults:
        if fault.what == "mode":
            count += _send_mode(db, fault.key)
            continue
        db.execute(
            "DELETE FROM contents WHERE sha256 = (SELECT sha256 FROM files WHERE folder = ? AND name = ?)",
            fault.key,
        )
        left = "" if fault.untouched else "acked = NULL, ino = NULL, "
        cursor = db.execute(
            "UPDATE files SET state = 1, not_before = 0, tries = 0, prio = 1, crc = 0, "  # noqa: S608 - constants
            f"sha256 = NULL, {left}generation = -1 WHERE folder = ? AND name = ? AND state = 0 "
            "AND COALESCE(sent_at, 0.0) = ?",
            (*fault.key, fault.sent_at),
        )
        count += cursor.rowcount
    db.commit()
    return count


def _send_mode(db: sqlite3.Connection, key: Key) -> int:
    """Have the permissions of a file, or (no name) of a folder, sent again."""
    if not key.name:
        return db.execute("UPDATE folders SET mode = NULL WHERE id = ?", (key.folder,)).rowcount
    return db.execute(
        "UPDATE files SET state = 1, not_before = 0, tries = 0, mode = NULL "
        "WHERE folder = ? AND name = ? AND state = 0",
        key,
    ).rowcount
