"""Status snapshot of replication on this machine.

It is read from the ledger, whether the worker runs or not: the worker stores a JSON snapshot (`meta.live`)
every second; counts come from the ledger's indexes. Neither contains secrets.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from rla_agent.replicate import command_markers, registry
from rla_agent.replicate.ledger_schema import STEPS, ledger_path
from rla_agent.store.sqlite import NewerFormatError, connect_readonly

LIVE_NAME: Final = "live"
STALE_S: Final = 30.0  # an older snapshot is a dead worker's
MAX_PARKED: Final = 50  # listed; the count covers the rest


def replication_status(state: Path) -> dict[str, Any]:
    """A snapshot as plain data.

    Returns:
        `running` (worker alive), `paused`, `targets` (per database: name, data root, health, reason,
        fix, problem, backlog {kind: {files, bytes}}, rate_bytes_s, eta_s, last_success, sent_files,
        written_bytes, kept, unconfirmed, mended), `lost` (no more there nor here; 50),
        `parked` (path, reason, fix; at most 50, and 50 folders of each database),
        `parked_files` and `parked_folders`; `error`: which part is unknown, and why.
    """
    status: dict[str, Any] = {
        "running": False,
        "paused": command_markers.paused(state),
        "targets": [],
        "parked": [],
        "parked_files": 0,
        "parked_folders": 0,
        "kept": [],
        "lost": [],
        "problems": {},
        "databases": [entry.data_root for entry in registry.listed(state)],
    }
    path = ledger_path(state)
    problem = registry.registry_problem(state)
    if problem:
        status["error"] = problem
    try:
        path.stat()
        with closing(connect_readonly(path, STEPS)) as db:
            _fill(db, status)
    except (FileNotFoundError, NotADirectoryError):
        return status  # nothing was ever replicated
    except NewerFormatError as error:
        status["error"] = f"replication waits: {error}"
    except OSError as error:
        status["error"] = f"the ledger {path} cannot be read: {error.strerror}"
    except (sqlite3.Error, ValueError, TypeError, AttributeError, LookupError) as error:
        status["error"] = f"the ledger {path} cannot be read: {error}"
    return status


def _fill(db: sqlite3.Connection, status: dict[str, Any]) -> None:
    row = db.execute("SELECT value FROM meta WHERE name = ?", (LIVE_NAME,)).fetchone()
    live = json.loads(row[0]) if row else {}
    status["running"] = time.time() - float(live.get("at", 0)) < STALE_S and _alive(int(live.get("pid", 0)))
    status["problems"] = live.get("problems", {}) if status["running"] else {}
    by_number = {int(entry["number"]): entry for entry in live.get("databases", [])}
    for number, root, target in db.execute("SELECT id, root, target FROM databases").fetchall():
        entry = by_number.get(number)
        if entry is None and status["running"]:
            continue
        backlog = _backlog(db, number)
        arrived = db.execute("SELECT sum(acked) FROM temps WHERE db = ?", (number,)).fetchone()[0] or 0
        pending = max(0, sum(kind["bytes"] for kind in backlog.values()) - arrived)
        rate = float(entry.get("sending_bytes_s", 0.0)) if entry and status["running"] else 0.0
        status["targets"].append(
            {
                "data_root": os.fsdecode(root),
                "target": target,
                "backlog": backlog,
                "unconfirmed": _unconfirmed(db, number),
                **(entry or {}),
                "eta_s": pending / rate if rate > 0 and pending else None,
            }
        )
    status["parked_files"] = db.execute("SELECT count(*) FROM files WHERE state = 2").fetchone()[0]
    rows = db.execute(
        "SELECT d.path, f.name, f.reason, f.mend FROM files f JOIN folders d ON d.id = f.folder "
        "WHERE f.state = 2 LIMIT ?",
        (MAX_PARKED,),
    )
    status["parked"] = [
        {"path": os.fsdecode(folder + b"/" + name), "reason": reason or "", "fix": fix or ""}
        for folder, name, reason, fix in rows
    ]
    if status["running"]:
        for entry in live.get("databases", []):
            status["parked"] += entry.get("unread", [])
            status["parked_folders"] += entry.get("unread_folders", 0)
    status["kept"] = [
        name[5:] for (name,) in db.execute("SELECT name FROM meta WHERE name LIKE 'kept:%' LIMIT 50")
    ]
    status["lost"] = [
        name[5:] for (name,) in db.execute("SELECT name FROM meta WHERE name LIKE 'lost:%' LIMIT 50")
    ]


def _unconfirmed(db: sqlite3.Connection, number: int) -> int:
    """Files that the master has acknowledged and not confirmed yet."""
    query = "SELECT count(*) FROM files WHERE db = ? AND check_at IS NOT NULL"
    return int(db.execute(query, (number,)).fetchone()[0])


def _backlog(db: sqlite3.Connection, number: int) -> dict[str, dict[str, int]]:
    rows = db.execute(
        "SELECT d.kind, count(*), sum(f.pending) FROM files f JOIN folders d ON d.id = f.folder "
        "WHERE f.db = ? AND f.state = 1 GROUP BY d.kind",
        (number,),
    )
    return {kind: {"files": files, "bytes": int(size or 0)} for kind, files, size in rows}


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
