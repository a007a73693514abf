"""Whether all of one item is on the master: its files, as they lie here now, against the ledger.

For `sync_log_file(wait=True)`: the client asks the agent again and again. Only reads: the files'
stats, the config, and the ledger beside the worker that writes it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from rla_agent.replicate import registry, settings
from rla_agent.replicate.ledger.ledger import CLEAN, ledger_path
from rla_agent.replicate.worker.scan import Folder, ScanError, Scanner
from rla_agent.store.config_reader import ConfigReader

_STATES = (
    "SELECT name, state, ino, size, mtime_ns, ctime_ns, acked FROM files WHERE folder = "
    "(SELECT id FROM folders WHERE db = ? AND path = ?)"
)


def arrived(state: Path, data_root: str, item: str, host: str, reader: ConfigReader) -> bool | None:
    """Whether every file of an item that is in scope is on its master, as it is now.

    Args:
        state: the agent's state folder.
        data_root: absolute.
        item: `table/YYYY/MM/DD/name`.
        host: this machine's name in run.json.
        reader: of the databases' configurations; one that cannot be read now is a no.

    Returns:
        None where the item is not replicated at all.
    """
    found: bool | None = None
    for entry in registry.entries(state):
        if entry.data_root != os.path.abspath(data_root) or item in entry.off:
            continue
        reading = reader.reading(entry.config)
        if reading is None:
            return False
        config = reading.config
        if config is None:
            return None
        if not settings.wanted(entry, config):
            continue
        name = settings.target(config, state / "replicate").name
        scanner = Scanner(os.fsencode(entry.data_root), settings.scope(entry, config, host))
        if not _all_there(ledger_path(state), scanner, item, name):
            return False
        found = True
    return found


def _all_there(path: Path, scanner: Scanner, item: str, target: str) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2.0)) as db:
            row = db.execute(
                "SELECT id FROM databases WHERE root = ? AND target = ?", (scanner.root, target)
            ).fetchone()
            if row is None:
                return False
            folders = [*scanner.item(item), *scanner.archives(item)]
            if scanner.unread:
                return False
            return bool(folders) and all(_folder_there(db, int(row[0]), folder) for folder in folders)
    except (sqlite3.Error, ScanError):
        return False


def _folder_there(db: sqlite3.Connection, number: int, folder: Folder) -> bool:
    known = {row[0]: row[1:] for row in db.execute(_STATES, (number, folder.path))}
    return all(
        known.get(name) == (CLEAN, local.ino, local.size, local.mtime_ns, local.ctime_ns, local.size)
        for name, local in folder.files.items()
    )
