"""Frees local disk: takes away files that are, byte for byte, on the master. At no instant there is no copy.

For each file, in this order:

1. The master's file is looked at: there, with the size and time of our last write. Then it is read
   whole and its SHA-256 compared with the ledger's (`deep=False` leaves the reading out).
2. The ledger's row goes from `CLEAN` to `PRUNED`, in one statement that also asks whether the row
   still is of the file as it lies here. Whoever else prunes at the same time loses here.
3. A note beside the file (`rla_client.contract.checkpoints`) says where it is; durable.
4. The note must not show on the master: else its root is this very folder (NFS), and what is read there
   is the only copy. The master's file is looked at again, and the local one; both must be as in 1.
5. The file is unlinked, and the folder fsynced. `take_away` sees to it that it is that file, and not a
   new one that took its name after the last look.

Killed anywhere before 5, the file is here and the next rescan puts the row back; killed after it, note
and row tell of it; killed within it, the next pass finishes it. Nothing of 2 and 3 is ever taken for a
deletion by the user: replication leaves the master's copy alone (`looking`), also with
`replicate_retention: mirror`.

What was sent less than `SETTLED_S` ago stays: the master's kernel may not have written it to disk.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.backend.target import LinkError, RemoteStat, Session, TargetError
from rla_agent.replicate.ledger.ledger import CLEAN, PRUNED, ledger_path, upgrade
from rla_agent.replicate.ledger.rows import Key, record_of
from rla_agent.replicate.retain import prune_plan
from rla_agent.replicate.retain.prune_plan import Candidate, Rules, choose, first_to_go, newest
from rla_agent.replicate.retain.safe_unlink import MAX_NAME_BYTES, settle, take_away
from rla_agent.replicate.worker.plan import Local, copy_mode
from rla_agent.replicate.worker.scan import Folder, Scanner, Scope
from rla_agent.replicate.worker.source import fingerprint, local_state
from rla_client.contract.checkpoints import (
    PRUNED_FOLDER,
    PrunedFile,
    drop_note,
    note_path,
    write_note,
)
from rla_client.contract.errors import RlaError
from rla_client.contract.files import open_root, walk_root
from rla_client.contract.layout import CHECKPOINT

SETTLED_S: Final = 120.0  # Linux writes what is dirty for 30 s
UNKNOWN_REST_S: Final = 86400.0  # a run without run.json is taken for ended after so long without a row
READ_BYTES: Final = 4 << 20
LEDGER_WAIT_S: Final = 30.0
_COLUMNS: Final = (
    "f.ino, f.size, f.mtime_ns, f.ctime_ns, f.generation, f.acked, f.crc, f.head_crc, f.tail_crc, f.sha256, "
    "f.remote_mtime"
)


class PruneError(RlaError):
    """Nothing can be pruned: no ledger, or nothing of this database was ever sent."""


class StaysError(RlaError):
    """One file stays; the text says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would go, what the files of these kinds take here now, and reason → how many stay for it."""

    chosen: tuple[Candidate, ...]
    used_bytes: int
    free_bytes: int
    kept: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """What it frees."""
        return sum(one.local.size for one in self.chosen)


@dataclass(frozen=True, slots=True)
class Done:
    """One file: taken away, or the reason why it stays."""

    path: str
    size: int
    stays: str = ""


class Pruner:
    """Prunes one database at one target."""

    def __init__(self, state: Path, root: str, target: str) -> None:
        """Open the ledger beside the worker.

        Args:
            state: the agent's state folder.
            root: data root, absolute.
            target: the master's name, see `settings.Target`.

        Raises:
            PruneError: nothing of this database was sent there from here.
        """
        self._root = os.fsencode(root)
        self._target = target
        path = ledger_path(state)
        if not path.exists():
            raise PruneError(f"nothing of {root} was replicated from here, so nothing can be pruned")
        with _ledger_errors():
            self._db = sqlite3.connect(path, isolation_level=None, timeout=LEDGER_WAIT_S)
            upgrade(self._db, state)
            self._db.execute("PRAGMA synchronous = FULL")  # durable before the file goes
            row = self._db.execute(
                "SELECT id FROM databases WHERE root = ? AND target = ?", (self._root, target)
            ).fetchone()
        if row is None:
            self._db.close()
            raise PruneError(f"nothing of {root} was sent to {target} from here, so nothing can be pruned")
        self._number = int(row[0])
        self._descriptor = open_root(os.fsdecode(self._root))

    def close(self) -> None:
        """Let go of the ledger and the data root."""
        self._db.close()
        os.close(self._descriptor)

    # -- what may go -------------------------------------------------------------------------

    def plan(self, rules: Rules, now: float, settled_s: float = SETTLED_S) -> Plan:
        """Which files would go by these rules.

        Args:
            rules: the limits.
            now: Unix seconds.
            settled_s: how long ago a file must have been sent.
        """
        scanner = Scanner(self._root, Scope(host="", kinds=rules.kinds))
        used = 0
        kept: Counter[str] = Counter()

        def candidates() -> Iterator[Candidate]:
            nonlocal used
            for folder in self._settled(scanner):
                used += sum(local.size for local in folder.files.values())
                if folder.files and not self._ended(scanner, folder.item, now):
                    kept[prune_plan.LIVE] += len(folder.files)
                elif folder.files:
                    for found in self._of_folder(folder, rules, now - settled_s):
                        kept[prune_plan.SPARED if isinstance(found, Candidate) else found] += 1
                        if isinstance(found, Candidate):
                            yield found

        with _ledger_errors():
            first = first_to_go(candidates(), rules)
        found = os.statvfs(self._root)
        free = found.f_bavail * found.f_frsize
        chosen = choose(first, rules, now=now, used_bytes=used, free_bytes=free)
        kept[prune_plan.SPARED] -= len(chosen)
        return Plan(tuple(chosen), used, free, +kept)

    def _settled(self, scanner: Scanner) -> Iterator[Folder]:
        """All folders; where an earlier pass was killed, as it would have left them.

        What gets its name back there is taken up by the next pass.
        """
        for folder in scanner.everything():
            if folder.partial:
                continue  # the newest of its checkpoints may be the one that is not seen
            path = os.fsdecode(os.path.join(self._root, folder.path))
            if os.path.isdir(os.path.join(path, PRUNED_FOLDER)):
                with suppress(OSError), self._folder(folder.path + b"/.") as (here, _):
                    settle(here)
            yield folder

    def _of_folder(self, folder: Folder, rules: Rules, sent_before: float) -> Iterator[Candidate | str]:
        """For each file: itself if it may go, else why it stays."""
        kept: set[str] = set()
        if folder.kind == CHECKPOINT and folder.path == folder.item:
            kept = newest(map(os.fsdecode, folder.files), rules.keep_newest)
        rows = self._rows(folder.path)
        for name, local in folder.files.items():
            text = os.fsdecode(name)
            unfit = prune_plan.unfit(folder.kind, text, local.size)
            candidate, sent_at = rows.get(name, (None, 0.0))
            if text in kept or unfit or len(name) > MAX_NAME_BYTES:
                yield prune_plan.NEWEST if text in kept else unfit or prune_plan.OTHER_NAME
            elif candidate is None:
                yield prune_plan.UNSENT
            elif candidate.local != local:
                yield prune_plan.CHANGED
            else:
                yield candidate if sent_at <= sent_before else prune_plan.FRESH

    def _ended(self, scanner: Scanner, item: bytes, now: float) -> bool:
        name = os.fsdecode(item.partition(b"/")[2])
        run = scanner.run(name)
        if run is not None:
            return not run.live
        with suppress(OSError):
            rows = os.path.join(self._root, os.fsencode(f"log/{name}/progress.csv"))
            return now - os.stat(rows).st_mtime > UNKNOWN_REST_S
        return False

    def _rows(self, folder: bytes) -> dict[bytes, tuple[Candidate, float]]:
        """Name → file of a folder that the ledger holds as wholly on the master, and when it was sent."""
        rows = self._db.execute(
            f"SELECT f.folder, f.name, d.path, d.kind, d.item, f.sent_at, {_COLUMNS} FROM folders d "  # noqa: S608 - constants
            "JOIN files f ON f.folder = d.id WHERE d.db = ? AND d.path = ? AND f.state = ? "
            "AND f.acked = f.size",
            (self._number, folder, CLEAN),
        )
        found = {}
        for row in rows:
            record = record_of(row[6:])
            if record is not None and row[5] is not None:
                key = Key(row[0], row[1])
                found[row[1]] = Candidate(key, row[2] + b"/" + row[1], row[3], row[4], record), float(row[5])
        return found

    # -- taking away -------------------------------------------------------------------------

    def carry_out(self, plan: Plan, session: Session, *, deep: bool = True) -> Iterator[Done]:
        """Take the planned files away, one after the other.

        Args:
            plan: what `plan` gave.
            session: at the master.
            deep: read each file back and compare its SHA-256.

        Raises:
            LinkError: the master is away; what was not said to be done stays.
            PruneError: the ledger cannot be written; the same.
        """
        for one in plan.chosen:
            path = os.fsdecode(one.path)
            try:
                with _ledger_errors():
                    self._take(one, session, deep=deep)
            except LinkError:
                raise
            except (StaysError, TargetError) as error:
                yield Done(path, one.local.size, str(error))
            except OSError as error:
                yield Done(path, one.local.size, error.strerror or str(error))
            else:
                yield Done(path, one.local.size)

    def _take(self, one: Candidate, session: Session, *, deep: bool) -> None:
        _on_master(session, one)
        sha = self._sha(one)
        if deep and _read_back(session, one) != sha:
            raise StaysError("the master's content is not what was sent; see: rla verify --fix")
        with self._folder(one.path) as (folder, name):
            self._check_here(folder, name, one.local)
            if not self._claim(one):
                raise StaysError("it has changed, or somebody else prunes it")
            try:
                self._note(one, sha, folder)
                _is_another_folder(session, one)
                _on_master(session, one)
                self._check_here(folder, name, one.local)
                self._remove(folder, name, one.local)
            except BaseException:
                self._unclaim(one, folder)
                raise
            os.fsync(folder)

    def _sha(self, one: Candidate) -> bytes:
        """SHA-256 of what was sent; of a file that grew there, of the same bytes here."""
        if one.record.sha256 is not None:
            return one.record.sha256
        found = fingerprint(self._descriptor, one.path, one.local.size)
        if (found.size, found.crc) != (one.local.size, one.record.crc):
            raise StaysError("it differs from what was sent; the next scan sends it again")
        self._update("UPDATE files SET sha256 = ? WHERE folder = ? AND name = ?", found.sha256, *_key(one))
        return found.sha256

    def _claim(self, one: Candidate) -> bool:
        local = one.local
        return self._update(
            "UPDATE files SET state = ? WHERE folder = ? AND name = ? AND state = ? AND ino = ? AND size = ? "
            "AND mtime_ns = ? AND ctime_ns = ? AND acked = ?",
            PRUNED,
            *_key(one),
            CLEAN,
            local.ino,
            local.size,
            local.mtime_ns,
            local.ctime_ns,
            local.size,
        )

    def _unclaim(self, one: Candidate, folder: int) -> None:
        """The file stays, if it is still here."""
        if os.path.lexists(os.path.join(self._root, one.path)):
            drop_note(f"/proc/self/fd/{folder}", os.fsdecode(one.key.name))
            states = (CLEAN, *_key(one), PRUNED)
            self._update("UPDATE files SET state = ? WHERE folder = ? AND name = ? AND state = ?", *states)

    def _update(self, statement: str, *values: object) -> bool:
        return self._db.execute(statement, values).rowcount == 1

    def _note(self, one: Candidate, sha: bytes, folder: int) -> None:
        local = one.local
        mode = copy_mode(os.stat(one.key.name, dir_fd=folder, follow_symlinks=False).st_mode)
        note = PrunedFile(
            os.fsdecode(one.path), local.size, sha.hex(), local.mtime_ns, self._target, time.time(), mode
        )
        write_note(f"/proc/self/fd/{folder}", note)

    @contextmanager
    def _folder(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Descriptor of the folder of a file, reached without following links, and the file's name."""
        *parts, name = path.split(b"/")
        folder = walk_root(self._descriptor, parts)
        try:
            yield folder, name
        finally:
            os.close(folder)

    @staticmethod
    def _check_here(folder: int, name: bytes, local: Local) -> None:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if local_state(found) != local:
            raise StaysError("it has changed here meanwhile")

    @staticmethod
    def _remove(folder: int, name: bytes, local: Local) -> None:
        if not take_away(folder, name, local):
            raise StaysError("it has changed here meanwhile")


@contextmanager
def _ledger_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise PruneError(f"the ledger cannot be read or written: {error}; nothing more is pruned") from error


def _key(one: Candidate) -> tuple[int, bytes]:
    return one.key.folder, one.key.name


def _on_master(session: Session, one: Candidate) -> None:
    found = session.stat(one.path)
    if found is None:
        raise StaysError("the master has lost it; see: rla verify --fix")
    if found != RemoteStat(one.local.size, one.record.remote_mtime_s):
        raise StaysError("the master's file is not as we left it; see: rla verify --fix")


def _is_another_folder(session: Session, one: Candidate) -> None:
    """Be sure that the master's root is not this data root (NFS, a link): its file would be the one here.

    Notes never go to the master; the note that was just written shows there only if both are one.
    """
    folder, name = map(os.fsdecode, os.path.split(one.path))
    if session.stat(os.fsencode(note_path(folder, name))) is not None:
        raise StaysError("the master's root seems to be this very data root, so there is one copy only")


def _read_back(session: Session, one: Candidate) -> bytes:
    sha, at = hashlib.sha256(), 0
    while at < one.local.size:
        data = session.read(one.path, at, min(READ_BYTES, one.local.size - at))
        if not data:
            raise StaysError(f"the master's file ends at {at} of {one.local.size} bytes")
        sha.update(data)
        at += len(data)
    return sha.digest()


def prune_database(
    pruner: Pruner, open_session: Callable[[], Session], rules: Rules, now: float
) -> Iterator[Done]:
    """Plan and carry out; connects only when there is something to do.

    Args:
        pruner: of the database.
        open_session: connects to the master.
        rules: the limits.
        now: Unix seconds.

    Raises:
        TargetError: the master cannot be reached.
        PruneError: the ledger cannot be read or written.
    """
    plan = pruner.plan(rules, now)
    if not plan.chosen:
        return
    session = open_session()
    try:
        yield from pruner.carry_out(plan, session)
    finally:
        session.close()
