"""Comparison of the master with the ledger.

Files are compared by size or by content. Where content is compared, an unchanged local file is read, too: if
it differs from what was sent, the fault is `source`. A file that has changed since waits to be sent and is
not judged, nor is one that is sent during the comparison. A file or folder with wider permissions there than
here (or, where it is no longer here, than when it was sent) has the fault `mode`. Narrower permissions (its
server refused to set modes) are no fault.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from rla_agent.replicate.backend.errors import UnreadableError
from rla_agent.replicate.backend.remote_modes import new_mode
from rla_agent.replicate.backend.remote_stat import RemoteStat, same
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.copy_modes import copy_mode, folder_copy_mode
from rla_agent.replicate.file_state import Local
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.worker.source_file import (
    Fingerprint,
    SourceFile,
    fingerprint_of,
    local_state,
)
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.layout import ARCHIVE_TESTER
from rla_client.contract.process.descriptors import closing_fd

if TYPE_CHECKING:
    import sqlite3


VERIFY_ROWS: Final = 1000  # rows of the ledger in memory at a time
FaultKind = Literal["missing", "size", "content", "unreadable", "mode", "source"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference that `verify` found.

    `untouched`: size and time are as we left them, so nobody has edited the file: it is damaged.
    `sent_at`: when the examined copy was sent; 0 of a folder.
    """

    path: str
    what: FaultKind
    key: Key
    untouched: bool
    sent_at: float = 0.0


def verify_ledger(
    session: TargetSession, db: sqlite3.Connection, number: int, *, sizes: bool, sample: float = 1.0
) -> tuple[int, list[Difference]]:
    """Compare the master with the ledger.

    Args:
        session: at the master.
        db: the ledger, read-only is enough.
        number: the database.
        sizes: compare presence and size only.
        sample: part of the files whose content is read, 0 to 1.

    Returns:
        Number of compared files, with the faults.
    """
    count = 0
    row = db.execute("SELECT root FROM databases WHERE id = ?", (number,)).fetchone()
    root = row[0] if row is not None else b"/"
    faults = [*_open_folders(session, db, number, root)]
    for row in _sent_files(db, number):
        count += 1
        deep = not sizes and (sample >= 1 or random.random() < sample)  # noqa: S311 - a sample
        fault = _look(session, root, row, deep=deep)
        if fault is not None and (fault.what == "mode" or _is_as_it_was(db, row)):
            faults.append(fault)
    return count, faults


def _look(session: TargetSession, root: bytes, row: tuple[Any, ...], *, deep: bool) -> Difference | None:
    folder, name, path, size, mtime_s, crc, sha, mode, sent_at, *local = row
    full = path + b"/" + name
    found = session.stat(full)
    what = _compare(session, full, found, size, (crc, sha) if deep else None)
    untouched = True
    if what is not None:
        untouched = same(found, RemoteStat(size, mtime_s))
    elif deep and _other_here(root, full, Local(*local), size, (crc, sha)):
        what = "source"
    elif _more_open(
        found, _mode_here(os.path.join(root, full), lambda path: copy_mode(os.lstat(path).st_mode), mode)
    ):
        what = "mode"
    return (
        None if what is None else Difference(os.fsdecode(full), what, Key(folder, name), untouched, sent_at)
    )


def _is_as_it_was(db: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
    """Whether no byte of a file was sent since its row was read, or is on its way."""
    folder, name, _, acked, *_ = row
    sent_at = row[8]
    unchanged = (
        "SELECT 1 FROM files WHERE folder = ? AND name = ? AND acked = ? AND COALESCE(sent_at, 0.0) = ? "
        "AND state IN (0, 3, 5)"
    )
    return db.execute(unchanged, (folder, name, acked, sent_at)).fetchone() is not None


def _sent_files(db: sqlite3.Connection, number: int) -> Iterator[tuple[Any, ...]]:
    """Rows of the files on the master; in short reads, since the WAL grows during a long one."""
    last: tuple[int, bytes] = (-1, b"")
    while True:
        rows = db.execute(
            "SELECT f.folder, f.name, d.path, f.acked, f.remote_mtime, f.crc, f.sha256, f.mode, "
            "COALESCE(f.sent_at, 0.0), f.ino, f.size, f.mtime_ns, f.ctime_ns FROM files f "
            "JOIN folders d ON d.id = f.folder WHERE (f.folder, f.name) > (?, ?) AND f.db = ? "
            "AND f.acked IS NOT NULL AND f.state IN (0, 3, 5) ORDER BY f.folder, f.name LIMIT ?",
            (*last, number, VERIFY_ROWS),
        ).fetchall()
        yield from rows
        if len(rows) < VERIFY_ROWS:
            return
        last = rows[-1][:2]


def _open_folders(
    session: TargetSession, db: sqlite3.Connection, number: int, root: bytes
) -> Iterator[Difference]:
    query = "SELECT id, path, kind, item, mode FROM folders WHERE db = ? ORDER BY path"
    for folder, path, kind, item, mode in db.execute(query, (number,)).fetchall():
        wanted = _mode_here(os.path.join(root, path), folder_copy_mode, mode)
        if wanted is None:
            continue
        found = session.stat(path)
        if found is not None and (not item or kind == ARCHIVE_TESTER):  # shared
            opened = new_mode(found, wanted, only_less=True) is not None
        else:
            opened = _more_open(found, wanted)
        if opened:
            yield Difference(os.fsdecode(path), "mode", Key(folder, b""), untouched=True)


def _mode_here(path: bytes, of: Callable[[bytes], int], sent: int | None) -> int | None:
    try:
        return of(path)
    except OSError:
        return sent


def _more_open(state: RemoteStat | None, mode: int | None) -> bool:
    if state is None or state.mode is None or mode is None:
        return False
    return state.mode & ~mode & 0o077 != 0


def _compare(
    session: TargetSession,
    path: bytes,
    state: RemoteStat | None,
    size: int,
    sums: tuple[int, bytes | None] | None,
) -> FaultKind | None:
    if state is None:
        return "missing"
    if state.kind != "file" or state.size != size:
        return "size"
    if sums is None:
        return None
    there = fingerprint_of(lambda at, count: session.read(path, at, count), size)
    if there.size < size:
        return "unreadable"
    return "content" if _differs(there, sums) else None


def _other_here(root: bytes, path: bytes, sent: Local, size: int, sums: tuple[int, bytes | None]) -> bool:
    """Whether the unchanged local file differs from what was sent."""
    try:
        with closing_fd(open_root(root)) as held:
            source = SourceFile(held, path)
    except OSError:
        return False  # missing or unreadable: the replicator reports that
    with closing(source), suppress(UnreadableError):
        if source.local == sent:
            found = source.fingerprint(size)
            unchanged = local_state(os.fstat(source.descriptor)) == sent
            return unchanged and _differs(found, sums)
    return False


def _differs(fingerprint: Fingerprint, sums: tuple[int, bytes | None]) -> bool:
    """`sums`: CRC-32, and SHA-256 where it is known."""
    return fingerprint.crc != sums[0] or sums[1] not in {None, fingerprint.sha256}
