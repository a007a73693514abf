"""Which files may leave this machine, and in which order. Pure.

Only kinds that nothing here reads by itself: `checkpoint`, and if asked for `results` and `tmp_data`.
Rows, parameters, code and archives always stay: the database's queries, plots and resume need them, and
they are small. Of `checkpoint` only files that `load_checkpoint` can ask for, `<name>_<time-step>.pt`;
what users put there under other names stays.

A run that lives is left alone, and of each ended run the newest checkpoints of each name stay.
Oldest first, checkpoints before other kinds, `MAX_AT_ONCE` in one pass.

Whether all of one item is on the master: its files, as they lie here now, against the ledger.

For `sync_log_file(wait=True)`: the client asks the agent again and again. Only reads: the files'
stats, the config, and the ledger beside the worker that writes it.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate import registry, settings
from rla_agent.replicate.ledger.ledger import CLEAN, STEPS, ledger_path
from rla_agent.replicate.ledger.rows import Key
from rla_agent.replicate.worker.plan import Local, Record
from rla_agent.replicate.worker.scan import Folder, ScanError, Scanner
from rla_agent.store.config_reader import ConfigReader
from rla_agent.store.state import NewerFormatError, connect_readonly
from rla_client.contract.layout import CHECKPOINT
from rla_client.contract.retention import PRUNABLE

_log = logging.getLogger("rla_agent.replicate")
_STATES = (
    "SELECT name, state, ino, size, mtime_ns, ctime_ns, acked FROM files WHERE folder = "
    "(SELECT id FROM folders WHERE db = ? AND path = ?)"
)
MAX_AT_ONCE: Final = 50_000  # files of one pass, 50 MB in memory; the next pass takes the next ones
MIN_FILE_BYTES: Final = 4096  # a smaller one frees no more than its note takes
_CHECKPOINT: Final = re.compile(r"(.+)[_-](-?[0-9]{1,19})\.pt", re.DOTALL)


# why a file stays, as the command says it
LIVE: Final = "of a run that has not ended"
OTHER_KIND: Final = "of a kind that always stays"
OTHER_NAME: Final = "not named NAME_STEP.pt"
SMALL: Final = f"smaller than {MIN_FILE_BYTES >> 10} KiB"
NEWEST: Final = "newest of its run and name"
UNSENT: Final = "not wholly on the master yet"
FRESH: Final = "sent less than two minutes ago"
CHANGED: Final = "changed since it was sent"
SPARED: Final = "within the limits given"


@dataclass(frozen=True, slots=True)
class Rules:
    """When a file goes. At least one of the three limits must be given; a file goes by any of them.

    Attributes:
        kinds: which kinds, those that go first first.
        older_than_s: files not written for so many seconds; 0: no such limit.
        max_bytes: as many oldest ones as it takes until files of these kinds take no more than this;
            0: no such limit.
        free_bytes: as many oldest ones as it takes until the disk has so much free; 0: no such limit.
        keep_newest: checkpoints of each name of each run that always stay, at least 1.
    """

    kinds: tuple[str, ...] = (CHECKPOINT,)
    older_than_s: float = 0.0
    max_bytes: int = 0
    free_bytes: int = 0
    keep_newest: int = 1

    @property
    def empty(self) -> bool:
        """Whether no limit is given."""
        return not (self.older_than_s or self.max_bytes or self.free_bytes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that is on the master as it lies here. `path`, `item`: below the data root."""

    key: Key
    path: bytes
    kind: str
    item: bytes
    record: Record

    @property
    def local(self) -> Local:
        """The file here."""
        return self.record.local


def unfit(kind: str, name: str, size: int) -> str:
    """Why a file cannot be taken away and fetched back, whatever the rules; empty where it can."""
    if kind not in PRUNABLE:
        return OTHER_KIND
    if kind == CHECKPOINT and _CHECKPOINT.fullmatch(name) is None:
        return OTHER_NAME
    return SMALL if size < MIN_FILE_BYTES else ""


def newest(names: Iterable[str], count: int) -> set[str]:
    """Of a checkpoint folder's files the `count` with the highest time-steps of each name."""
    series: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is not None:
            series.setdefault(match[1], []).append((int(match[2]), name))
    return {name for found in series.values() for _, name in sorted(found)[-max(1, count) :]}


def first_to_go(candidates: Iterable[Candidate], rules: Rules) -> list[Candidate]:
    """The `MAX_AT_ONCE` of them that go before all others, in that order; of a million no more are held."""
    order = {kind: place for place, kind in enumerate(rules.kinds)}
    return heapq.nsmallest(
        MAX_AT_ONCE, candidates, key=lambda one: (order[one.kind], one.local.mtime_ns, one.path)
    )


def choose(
    candidates: Iterable[Candidate], rules: Rules, *, now: float, used_bytes: int, free_bytes: int
) -> list[Candidate]:
    """The files that go, in the order in which they go.

    Args:
        candidates: those that may.
        rules: the limits.
        now: Unix seconds.
        used_bytes: what files of these kinds take here, also those that may not go.
        free_bytes: what the disk has free.
    """
    chosen = []
    for one in first_to_go(candidates, rules):
        old = rules.older_than_s > 0 and now - one.local.mtime_ns / 1e9 > rules.older_than_s
        much = 0 < rules.max_bytes < used_bytes
        full = free_bytes < rules.free_bytes
        if old or much or full:
            chosen.append(one)
            used_bytes -= one.local.size
            free_bytes += one.local.size
    return chosen


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
        with closing(connect_readonly(path, STEPS)) as db:
            row = db.execute(
                "SELECT id FROM databases WHERE root = ? AND target = ?", (scanner.root, target)
            ).fetchone()
            if row is None:
                return False
            folders = [*scanner.item(item), *scanner.archives(item)]
            if scanner.unread:
                return False
            return bool(folders) and all(_folder_there(db, int(row[0]), folder) for folder in folders)
    except (sqlite3.Error, ScanError, NewerFormatError):
        return False


def _folder_there(db: sqlite3.Connection, number: int, folder: Folder) -> bool:
    known = {row[0]: row[1:] for row in db.execute(_STATES, (number, folder.path))}
    return all(
        known.get(name) == (CLEAN, local.ino, local.size, local.mtime_ns, local.ctime_ns, local.size)
        for name, local in folder.files.items()
    )
