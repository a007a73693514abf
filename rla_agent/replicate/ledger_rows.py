"""Rows of the ledger as its readers get them.

A file is `CLEAN` (the master has `acked` bytes of it), `DIRTY` (to be read and sent), `PARKED` (somebody must
act; reason and fix say how), `GONE` (no longer here; the master keeps it), `BURIED` (deleted on purpose:
never sent again), `PRUNED` (removed from this machine on purpose, see `prune`) or `DROPPED` (by
`max_to_keep`, and the master's copy is to be deleted, too).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.file_state import Local, SentRecord

CLEAN, DIRTY, PARKED, GONE, BURIED, PRUNED, DROPPED = range(7)
RECORD_COLUMNS: Final = (  # of `files f`, for `record_of`
    "f.ino, f.size, f.mtime_ns, f.ctime_ns, f.generation, f.acked, f.crc, f.head_crc, f.tail_crc, f.sha256, "
    "f.remote_mtime, f.mode"
)


class Key(NamedTuple):
    """A file of the ledger."""

    folder: int
    name: bytes


@dataclass(frozen=True, slots=True)
class SendAttempt:
    """A possible leftover of an attempt with unknown outcome under the final name.

    `mtime_s` None: an append; any size from the record's up to this one may be there.
    """

    size: int
    mtime_s: int | None


@dataclass(frozen=True, slots=True)
class Due:
    """A file that is due. `path` is relative to the data root; `seen`: when its change was first noticed."""

    key: Key
    path: bytes
    kind: str
    item: bytes
    item_made: bool
    pending: int
    tries: int
    kept: int
    seen: float
    attempts: tuple[SendAttempt, ...]
    record: SentRecord | None


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file of an item. `waiting`: not all of it is on the master."""

    key: Key
    path: bytes
    waiting: bool
    record: SentRecord | None


@dataclass(frozen=True, slots=True)
class Drop:
    """A file to delete on the master, if nobody changed it there. `sha256`: where that is known."""

    key: Key
    path: bytes
    left: RemoteStat
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class Temp:
    """A temp file on the master: how many bytes of which version it has; `synced`: how many on its disk."""

    temp: bytes
    key: Key
    local: Local
    acked: int
    synced: int = 0


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A file that the master has acknowledged, to be checked there. `here`: the file is still here.

    `sent_at`: Unix seconds. `of_whole`: as of a `SendJob`.
    """

    key: Key
    path: bytes
    kind: str
    item: bytes
    here: bool
    sent_at: float
    record: SentRecord
    of_whole: bytes | None = None


def record_of(row: tuple[Any, ...]) -> SentRecord | None:
    """The record in `RECORD_COLUMNS`; None where the master has nothing."""
    ino, size, mtime_ns, ctime_ns, generation, acked, *sums, mode = row
    if acked is None or ino is None:
        return None
    return SentRecord(Local(ino, size, mtime_ns, ctime_ns, mode), generation, acked, *sums)


def due_of(row: tuple[Any, ...]) -> Due:
    """A row of the `due` query."""
    folder, name, path, kind, item, made, pending, tries, kept, seen, text = row[:11]
    attempts = tuple(SendAttempt(*pair) for pair in json.loads(text)) if text else ()
    key, record = Key(folder, name), record_of(row[11:])
    return Due(key, path + b"/" + name, kind, item, bool(made), pending, tries, kept, seen, attempts, record)
