"""Whether what the master has is what was sent: the sums of ended runs, and `verify`.

*`SHA256SUMS`* is written into a run's logs once the master has all of it (`settle`). Files that grew were
sent piece by piece, so each is read once as a whole, and so is one that was written since it was sent: if
it is no longer what was sent (somebody rewrote it in place, a moment before the run ended perhaps), it is
sent anew. The sums are replicated like any file; on the master (or here) `sha256sum -c SHA256SUMS` in that
folder checks every file of the run, of all kinds. On the way back (`damaged`), a file that was changed after
the sums were made says nothing. Any other whose content differs was damaged, on the master or on the way.

*`verify`* compares the master with what the ledger says is on it, by size or by content (`verify_ledger`),
and has what is wrong sent again (`repair`). Where content is compared, a file that lies here as it was when
it was last sent is read, too: if it is not what went then, the fault is `source`. One that has changed
since waits to be sent, and says nothing. A file or folder that is more open there than here is a fault of
its own, `mode`; where it is here no more, than it was when it was sent. A master that keeps it less open
(its server refused to set modes) is none.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rla_agent.replicate.backend.target import RemoteStat, Session, UnreadableError, new_mode, same
from rla_agent.replicate.ledger import Key, Ledger
from rla_agent.replicate.worker.plan import Local, copy_mode
from rla_agent.replicate.worker.source import (
    Fingerprint,
    Source,
    fingerprint,
    fingerprint_of,
    folder_copy_mode,
    local_state,
)
from rla_client.contract.errors import BrokenFileError, RlaError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.filesystem.safe_paths import held_folder, open_root
from rla_client.contract.layout import ARCHIVE_TESTER, LOG
from rla_client.contract.process.descriptors import closing_fd

if TYPE_CHECKING:
    import sqlite3

SUMS_NAME: Final = b"SHA256SUMS"
MAX_SUMS_BYTES: Final = 64 << 20  # some 500,000 files
_SHA_CHARS: Final = 64
VERIFY_ROWS: Final = 1000  # of the ledger, in memory at a time
What = Literal["missing", "size", "content", "unreadable", "mode", "source"]


class SettleError(RlaError):
    """The sums could not be written; they are left out."""


def settle(
    ledger: Ledger, number: int, root: bytes, descriptor: int, item: str, *, compact: bool = False
) -> bytes | None:
    """Check an ended item (`table/YYYY/MM/DD/name`) of a database and write its sums.

    `descriptor`: of the data root; `compact`: what was sent piece by piece is to be sent as a whole now.

    Returns:
        Path of the sums below the data root; empty where nothing of the item is to be on the master; None
        while something waits or was found changed.

    Raises:
        SettleError: the log folder cannot be written.
    """
    lines = []
    compacted = False
    folder = os.fsencode(f"{LOG}/{item}")
    for row in ledger.item_files(number, item):
        if row.waiting:
            return None
        if row.path == folder + b"/" + SUMS_NAME or row.record is None:
            continue
        sha = row.record.sha256
        if sha is None or _written_since(descriptor, row.path, row.record.local):
            try:
                found = fingerprint(descriptor, row.path, row.record.acked)
            except OSError:
                continue
            if (found.crc, found.size) != (row.record.crc, row.record.acked):
                ledger.send_anew(row.key)
                return None
            if sha is None and compact:
                ledger.send_anew(row.key)
                compacted = True
                continue
            sha = found.sha256
            ledger.set_sha(row.key, sha)
        lines.append(sum_line(sha, os.path.relpath(row.path, folder)))
    if compacted or not lines:  # deleted there on purpose: empty sums would stay after it is sent again
        return None if compacted else b""
    path = folder + b"/" + SUMS_NAME
    try:
        with held_folder(os.fsdecode(root), os.fsdecode(folder)) as here:
            write_atomic(here / os.fsdecode(SUMS_NAME), b"".join(sorted(lines)))
    except OSError as error:
        raise SettleError(f"{os.fsdecode(path)}: {error.strerror}") from error
    return path


def _written_since(root: int, path: bytes, sent: Local) -> bool:
    """Whether a file here is another version than was sent, which the next look may not have seen yet."""
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False  # pruned, or deleted here
    return (found.st_size, found.st_mtime_ns) != (sent.size, sent.mtime_ns)


def sum_line(sha: bytes, name: bytes) -> bytes:
    """A line as coreutils' sha256sum writes it; odd names are escaped and marked."""
    escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    mark = b"\\" if escaped != name else b""
    return mark + sha.hex().encode() + b"  " + escaped + b"\n"


def damaged(root: str, item: str, fetched: Iterable[str]) -> list[str]:
    """Which fetched files (paths below the data root) of an ended item are not what its sums say."""
    folder = Path(root, LOG, item)
    sums = folder / os.fsdecode(SUMS_NAME)
    try:
        made = sums.stat().st_mtime
        known = parse(read_small(sums, MAX_SUMS_BYTES), os.path.join(LOG, item))
    except (OSError, BrokenFileError):
        return []
    found = []
    for path in fetched:
        sha = known.get(path)
        local = Path(root, path)
        try:
            tells = sha is not None and not local.is_symlink() and local.stat().st_mtime <= made
            if tells and _sha256(local) != sha:
                found.append(path)
        except (FileNotFoundError, BrokenFileError):
            continue  # taken away again
    return found


def _sha256(path: Path) -> str:
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        return fingerprint_of(lambda _, count: file.read(count), size).sha256.hex()


def parse(text: bytes, folder: str) -> dict[str, str]:
    """Path below the data root → SHA-256; `folder` is that of the sums. Other lines are left out."""
    known = {}
    for line in text.split(b"\n"):
        escaped = line.startswith(b"\\")
        sha, gap, name = line.removeprefix(b"\\").partition(b"  ")
        if not gap or len(sha) != _SHA_CHARS:
            continue
        if escaped:
            name = (
                name.replace(b"\\\\", b"\0")
                .replace(b"\\n", b"\n")
                .replace(b"\\r", b"\r")
                .replace(b"\0", b"\\")
            )
        known[os.path.normpath(os.path.join(folder, os.fsdecode(name)))] = sha.decode("ascii", "replace")
    return known


@dataclass(frozen=True, slots=True)
class Fault:
    """One difference that `verify` found.

    `untouched`: size and time are as we left them, so nobody has edited the file and it is damage.
    """

    path: str
    what: What
    key: Key
    untouched: bool


def verify_ledger(
    session: Session, db: sqlite3.Connection, number: int, *, sizes: bool, sample: float = 1.0
) -> tuple[int, list[Fault]]:
    """Compare the master with what the ledger says is on it.

    Args:
        session: at the master.
        db: the ledger, read-only is enough.
        number: the database.
        sizes: only presence and size.
        sample: part of the files whose content is read, 0 to 1.

    Returns:
        Number of files looked at, and the faults.
    """
    count = 0
    row = db.execute("SELECT root FROM databases WHERE id = ?", (number,)).fetchone()
    root = row[0] if row is not None else b"/"
    faults = [*_open_folders(session, db, number, root)]
    for folder, name, path, size, mtime_s, crc, sha, mode, *local in _sent_files(db, number):
        count += 1
        deep = not sizes and (sample >= 1 or random.random() < sample)  # noqa: S311 - a sample
        full = path + b"/" + name
        found = session.stat(full)
        what = _compare(session, full, found, size, (crc, sha) if deep else None)
        if what is not None:
            untouched = same(found, RemoteStat(size, mtime_s))
            faults.append(Fault(os.fsdecode(full), what, Key(folder, name), untouched))
        elif deep and _other_here(root, full, Local(*local), size, (crc, sha)):
            faults.append(Fault(os.fsdecode(full), "source", Key(folder, name), untouched=True))
        elif _more_open(
            found, _mode_here(os.path.join(root, full), lambda path: copy_mode(os.lstat(path).st_mode), mode)
        ):
            faults.append(Fault(os.fsdecode(full), "mode", Key(folder, name), untouched=True))
    return count, faults


def _sent_files(db: sqlite3.Connection, number: int) -> Iterator[tuple[Any, ...]]:
    """Rows of what is on the master; some at a time, for the log of a ledger that is read for hours grows."""
    last: tuple[int, bytes] = (-1, b"")
    while True:
        rows = db.execute(
            "SELECT f.folder, f.name, d.path, f.acked, f.remote_mtime, f.crc, f.sha256, f.mode, "
            "f.ino, f.size, f.mtime_ns, f.ctime_ns FROM files f "
            "JOIN folders d ON d.id = f.folder WHERE (f.folder, f.name) > (?, ?) AND f.db = ? "
            "AND f.acked IS NOT NULL AND f.state IN (0, 3, 5) ORDER BY f.folder, f.name LIMIT ?",
            (*last, number, VERIFY_ROWS),
        ).fetchall()
        yield from rows
        if len(rows) < VERIFY_ROWS:
            return
        last = rows[-1][:2]


def _open_folders(session: Session, db: sqlite3.Connection, number: int, root: bytes) -> Iterator[Fault]:
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
            yield Fault(os.fsdecode(path), "mode", Key(folder, b""), untouched=True)


def _mode_here(path: bytes, of: Callable[[bytes], int], sent: int | None) -> int | None:
    try:
        return of(path)
    except OSError:
        return sent


def _more_open(found: RemoteStat | None, mode: int | None) -> bool:
    if found is None or found.mode is None or mode is None:
        return False
    return found.mode & ~mode & 0o077 != 0


def _compare(
    session: Session, path: bytes, found: RemoteStat | None, size: int, sums: tuple[int, bytes | None] | None
) -> What | None:
    if found is None:
        return "missing"
    if found.kind != "file" or found.size != size:
        return "size"
    if sums is None:
        return None
    there = fingerprint_of(lambda at, count: session.read(path, at, count), size)
    if there.size < size:
        return "unreadable"
    return "content" if _differs(there, sums) else None


def _other_here(root: bytes, path: bytes, sent: Local, size: int, sums: tuple[int, bytes | None]) -> bool:
    """Whether the file that was sent is still here, and its content is not what went."""
    try:
        with closing_fd(open_root(root)) as held:
            source = Source(held, path)
    except OSError:
        return False  # not here, or it cannot be read: the replicator tells of that
    with closing(source), suppress(UnreadableError):
        if source.local == sent:
            found = source.fingerprint(size)
            unchanged = local_state(os.fstat(source.descriptor)) == sent
            return unchanged and _differs(found, sums)
    return False


def _differs(found: Fingerprint, sums: tuple[int, bytes | None]) -> bool:
    """`sums`: CRC-32, and SHA-256 where it is known."""
    return found.crc != sums[0] or sums[1] not in {None, found.sha256}


def repair(db: sqlite3.Connection, faults: list[Fault]) -> int:
    """Have the replicator send faulty files again; returns how many are still here to be sent.

    A damaged file that nobody has touched is replaced. Any other is moved aside by the sender
    (`.kept-…`), for it may be somebody's work. No new link is made to a file of such content.
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
            f"sha256 = NULL, {left}generation = -1 WHERE folder = ? AND name = ? AND state = 0",
            fault.key,
        )
        count += cursor.rowcount
    db.commit()
    return count


def _send_mode(db: sqlite3.Connection, key: Key) -> int:
    """Have a file's or (no name) a folder's permissions sent once more."""
    if not key.name:
        return db.execute("UPDATE folders SET mode = NULL WHERE id = ?", (key.folder,)).rowcount
    return db.execute(
        "UPDATE files SET state = 1, not_before = 0, tries = 0, mode = NULL "
        "WHERE folder = ? AND name = ? AND state = 0",
        key,
    ).rowcount
