"""What the ledger's rows are outside of it: plain frozen data, and how a row becomes it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rla_agent.replicate.backend.target import RemoteStat
from rla_agent.replicate.worker.plan import Local, Record


@dataclass(frozen=True, slots=True)
class Key:
    """A file of the ledger."""

    folder: int
    name: bytes


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an earlier try, whose outcome is unknown, may have left under the final name.

    `mtime_s` None: an append; any size from the record's up to this one may be there.
    """

    size: int
    mtime_s: int | None


@dataclass(frozen=True, slots=True)
class Due:
    """A file to look at. `path` is relative to the data root; `seen`: when it was first found changed."""

    key: Key
    path: bytes
    kind: str
    item: bytes
    item_made: bool
    pending: int
    tries: int
    kept: int
    seen: float
    attempts: tuple[Attempt, ...]
    record: Record | None


@dataclass(frozen=True, slots=True)
class ItemFile:
    """A file of an item. `waiting`: not all of it is on the master."""

    key: Key
    path: bytes
    waiting: bool
    record: Record | None


@dataclass(frozen=True, slots=True)
class Drop:
    """A file to delete on the master, if it is as it was left there."""

    key: Key
    path: bytes
    left: RemoteStat


@dataclass(frozen=True, slots=True)
class Temp:
    """A temp name on the master and how much of which version of a file it holds."""

    temp: bytes
    key: Key
    local: Local
    acked: int


def due_of(row: tuple[object, ...]) -> Due:
    """A row of the ledger's `due` query."""
    folder, name, path, kind, item, made, pending, tries, kept, seen, attempts = row[:11]
    assert isinstance(folder, int) and isinstance(name, bytes) and isinstance(path, bytes)  # noqa: PT018
    assert isinstance(item, bytes) and isinstance(pending, int) and isinstance(tries, int)  # noqa: PT018
    assert isinstance(kept, int) and isinstance(seen, float)  # noqa: PT018
    return Due(
        Key(folder, name),
        path + b"/" + name,
        str(kind),
        item,
        bool(made),
        pending,
        tries,
        kept,
        seen,
        _attempts(attempts),
        record_of(row[11:]),
    )


def _attempts(text: object) -> tuple[Attempt, ...]:
    return tuple(Attempt(*pair) for pair in json.loads(text)) if isinstance(text, str) else ()


def record_of(row: tuple[object, ...]) -> Record | None:
    """The columns of a `Record`; None where the master has nothing."""
    if row[5] is None or row[0] is None:
        return None
    numbers = [value for value in row[:11] if isinstance(value, int)]
    sha = row[9] if isinstance(row[9], bytes) else None
    mode = row[11] if len(row) > 11 and isinstance(row[11], int) else None  # noqa: PLR2004 - may be left out
    ino, size, mtime_ns, ctime_ns, generation, acked, crc, head_crc, tail_crc, remote_mtime_s = numbers
    local = Local(ino, size, mtime_ns, ctime_ns, mode)
    return Record(local, generation, acked, crc, head_crc, tail_crc, sha, remote_mtime_s)
