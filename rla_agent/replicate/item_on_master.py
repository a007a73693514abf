"""Arrival of a complete item on its master.

A client that waits polls (`sync_log_file(wait=True)`). The check only reads: the files' stats, the config,
and the ledger that the worker writes.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from rla_agent.replicate import registry, replicated_scope, target_config
from rla_agent.replicate.ledger import database_number, folder_states
from rla_agent.replicate.ledger_rows import CLEAN
from rla_agent.replicate.ledger_schema import STEPS, ledger_path
from rla_agent.replicate.worker.read_faults import ScanError
from rla_agent.replicate.worker.scan import Folder, Scanner
from rla_agent.store.config_reader import ConfigReader
from rla_agent.store.sqlite import NewerFormatError, connect_readonly


def arrived(state: Path, data_root: str, item: str, host: str, reader: ConfigReader) -> bool | None:
    """Whether every file of an item that is in scope is on its master, as it is now.

    None where the item is not replicated at all; False where its configuration or the list of databases
    cannot be read now.
    `host`: this machine's name in run.json.
    """
    complete: bool | None = None
    try:
        entries = registry.entries(state)
    except registry.UnreadableListError:
        return False
    for entry in entries:
        if entry.data_root != os.path.abspath(data_root) or item in entry.off:
            continue
        reading = reader.reading(entry.config)
        if reading is None:
            return False
        config = reading.config
        if config is None:
            return None
        if not replicated_scope.wanted(entry, config):
            continue
        name = target_config.target(config, state / "replicate").name
        scanner = Scanner(os.fsencode(entry.data_root), replicated_scope.scope(entry, config, host))
        if not _all_there(ledger_path(state), scanner, item, name):
            return False
        complete = True
    return complete


def _all_there(path: Path, scanner: Scanner, item: str, target: str) -> bool:
    try:
        with closing(connect_readonly(path, STEPS)) as db:
            number = database_number(db, scanner.root, target)
            if number is None:
                return False
            folders = [*scanner.item(item), *scanner.archives(item)]
            if scanner.unread:
                return False
            return bool(folders) and all(_folder_there(db, number, folder) for folder in folders)
    except (sqlite3.Error, ScanError, NewerFormatError):
        return False


def _folder_there(db: sqlite3.Connection, number: int, folder: Folder) -> bool:
    known = folder_states(db, number, folder.path)
    return all(
        known.get(name, ())[:-1] == (CLEAN, *local.version, local.size)
        for name, local in folder.files.items()
    )
