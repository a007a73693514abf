"""Removal of local files with a verified copy on the master.

At least one verified copy exists at all times:

1. The master's file is checked (size and time of our last write), then read completely, and its SHA-256
   compared with the ledger's (`deep=False` skips the reading). Unconfirmed files stay.
2. The ledger's row changes from `CLEAN` to `PRUNED`, if it still is of the present local file.
3. A note beside the file (`rla_client.contract.item.prune_notes`) is written with its place; durable.
4. The note must not appear on the master: else its root is this very folder (NFS). Both files as in 1.
5. The file is unlinked by `safe_unlink`, and the folder fsynced.

A sharded checkpoint is pruned as one: its `whole.json` first, so that the rest is not mistaken for a complete
checkpoint, then its other files, except small ones. A later pass continues an interrupted one.

After a kill before 5, the file is here and the next rescan restores the row; after it, note and row record
the file; within it, the next pass finishes it. Steps 2 and 3 are never mistaken for a deletion by the user.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from rla_agent.replicate.backend.errors import LinkError, TargetError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.copy_modes import copy_mode
from rla_agent.replicate.file_state import Local
from rla_agent.replicate.ledger import database_number
from rla_agent.replicate.ledger_rows import CLEAN, PRUNED, RECORD_COLUMNS, Key, record_of
from rla_agent.replicate.ledger_schema import ledger_path, upgrade
from rla_agent.replicate.prune.prune_plan import (
    MIN_FILE_BYTES,
    NOT_WHOLE,
    OTHER_NAME,
    PruneCandidate,
    PrunePlan,
    PruneRules,
    choose,
    first_to_go,
    newest,
    unfit,
)
from rla_agent.replicate.prune.safe_unlink import MAX_NAME_BYTES, finish_prune, take_away
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.scan import Folder, Scanner, ScanScope
from rla_agent.replicate.worker.source_file import fingerprint, fingerprint_of, local_state
from rla_client.contract.checkpoint.stamp import read_stamp
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.filesystem.safe_paths import open_root, walk_root
from rla_client.contract.item.prune_notes import PrunedFile, drop_note, note_path, write_note
from rla_client.contract.layout import CHECKPOINT, PRUNED_FOLDER
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.sharded_checkpoint.files import OWN_FOLDER, WHOLE_NAME
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole

UNKNOWN_REST_S: Final = 86400.0  # a run without run.json counts as ended after so long without a row
LEDGER_WAIT_S: Final = 30.0
_UNCONFIRMED: Final = "not yet confirmed to be on the master's disk"
_SPARED: Final = "within the limits given"
NEWEST: Final = "newest of its run and name"
NOT_THERE: Final = "not wholly on the master yet"
CHANGED: Final = "changed since it was sent"
_CHANGED_HERE: Final = "it has changed here meanwhile"


class PruneError(RlaError):
    """Nothing can be pruned: no ledger, or nothing of this database was ever sent."""


class StaysError(RlaError):
    """One file stays; the text says why."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result for one file: pruned, or the reason why it stays."""

    path: str
    size: int
    stays: str = ""


class Pruner:
    """Prunes one database at one target."""

    def __init__(self, state: Path, root: str, target: str) -> None:
        """Open the ledger beside the worker; `target`: the master's name, see `target_config.Target`.

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
            number = database_number(self._db, self._root, target)
        if number is None:
            self._db.close()
            raise PruneError(f"nothing of {root} was sent to {target} from here, so nothing can be pruned")
        self._number = number
        self._descriptor = open_root(os.fsdecode(self._root))

    def close(self) -> None:
        """Close the ledger and the data root."""
        self._db.close()
        os.close(self._descriptor)

    def plan(self, rules: PruneRules, now: float) -> PrunePlan:
        """The files that these rules would prune; `now`: Unix seconds."""
        scanner = Scanner(self._root, ScanScope(host="", kinds=rules.kinds))
        used = 0
        kept: Counter[str] = Counter()

        def candidates() -> Iterator[PruneCandidate]:
            nonlocal used
            for folder in self._settled(scanner):
                used += sum(local.size for local in folder.files.values())
                if folder.files and not self._ended(scanner, folder.item, now):
                    kept["of a run that has not ended"] += len(folder.files)
                elif folder.files:
                    for found in self._of_folder(folder, rules):
                        kept[_SPARED if isinstance(found, PruneCandidate) else found] += 1
                        if isinstance(found, PruneCandidate):
                            yield found

        with _ledger_errors():
            first = first_to_go(candidates(), rules)
        found = os.statvfs(self._root)
        free = found.f_bavail * found.f_frsize
        chosen = choose(first, rules, now=now, used_bytes=used, free_bytes=free)
        kept[_SPARED] -= len(chosen)
        return PrunePlan(tuple(chosen), used, free, +kept)

    def _settled(self, scanner: Scanner) -> Iterator[Folder]:
        """All folders, after finishing interrupted passes there; files renamed back are pruned later."""
        for folder in scanner.everything():
            if folder.partial:
                continue  # the unreadable checkpoint may be the newest one
            path = os.fsdecode(os.path.join(self._root, folder.path))
            if os.path.isdir(os.path.join(path, PRUNED_FOLDER)):
                with suppress(OSError), self._folder(folder.path + b"/.") as (here, _):
                    finish_prune(here)
            yield folder

    def _of_folder(self, folder: Folder, rules: PruneRules) -> Iterator[PruneCandidate | str]:
        """For each file: itself if it may be pruned, else why it stays; of a sharded checkpoint the first."""
        kept: set[str] = set()
        sharded = sharded_order.split(folder.kind, folder.path + b"/.")
        if sharded is not None:
            if sharded[1] == b".":
                yield self._of_sharded(folder, rules)
            return
        if folder.kind == CHECKPOINT and folder.path == folder.item:
            try:
                with self._folder(folder.path + b"/.") as (here, _):
                    held = Path(f"/proc/self/fd/{here}")
                    kept = newest(held, os.listdir(held), rules.keep_newest)
            except OSError:
                return  # it went meanwhile
        rows = self._rows(folder.path)
        for name, local in folder.files.items():
            text = os.fsdecode(name)
            always = NEWEST if text in kept else unfit(folder.kind, text, local.size)
            candidate, confirmed = rows.get(name, (None, False))
            if always or len(name) > MAX_NAME_BYTES:
                yield always or OTHER_NAME
            elif candidate is None:
                yield NOT_THERE
            elif candidate.local != local:
                yield CHANGED
            else:
                yield candidate if confirmed else _UNCONFIRMED

    def _of_sharded(self, folder: Folder, rules: PruneRules) -> PruneCandidate | str:
        """`whole.json` of a sharded checkpoint, with the files to prune after it; else why it stays."""
        own = sharded_order.own_folder(folder.path)
        try:
            with self._folder(folder.path) as (above, name):
                here = Path(f"/proc/self/fd/{above}")
                text, is_last = os.fsdecode(name), folder.path.rpartition(b"/")[0] == folder.item
                if read_whole(here / text) is None and note_of_whole(here / text) is None:
                    return NOT_WHOLE
                if is_last and text in newest(here, os.listdir(here), rules.keep_newest):
                    return NEWEST
                found = [*self._parts(own, here / text / OWN_FOLDER), *self._parts(folder.path, here / text)]
        except OSError:
            return CHANGED  # it went meanwhile
        why = next((one for one in found if isinstance(one, str)), "")
        parts = [one for one in found if isinstance(one, PruneCandidate)]
        parts.sort(key=lambda one: one.key.name != sharded_order.MARK)
        if why or not parts:
            return why or _SPARED
        return replace(parts[0], others=tuple(parts[1:]))

    def _parts(self, path: bytes, here: Path) -> Iterator[PruneCandidate | str]:
        """The files of a sharded checkpoint's folder that are worth pruning, or why others make it stay."""
        rows = self._rows(path)
        for name in sorted(os.listdir(here)):
            local = os.lstat(here / name)
            if not stat.S_ISREG(local.st_mode) or name.startswith(TEMP_PREFIX):
                continue
            candidate, confirmed = rows.get(os.fsencode(name), (None, False))
            if candidate is None:
                yield NOT_THERE
            elif candidate.local != local_state(local):
                yield CHANGED
            elif not confirmed:
                yield _UNCONFIRMED
            elif local.st_size >= MIN_FILE_BYTES or name == WHOLE_NAME:
                yield candidate

    def _ended(self, scanner: Scanner, item: bytes, now: float) -> bool:
        name = os.fsdecode(item.partition(b"/")[2])
        run = scanner.run(name)
        if run is not None:
            return not run.live
        with suppress(OSError):
            rows = os.path.join(self._root, os.fsencode(f"log/{name}/progress.csv"))
            return now - os.stat(rows).st_mtime > UNKNOWN_REST_S
        return False

    def _rows(self, folder: bytes) -> dict[bytes, tuple[PruneCandidate, bool]]:
        """Name → file of a folder that is completely on the master by the ledger, and whether confirmed."""
        rows = self._db.execute(
            f"SELECT f.folder, f.name, d.path, d.kind, d.item, f.check_at IS NULL, {RECORD_COLUMNS} "  # noqa: S608 - constants
            "FROM folders d JOIN files f ON f.folder = d.id WHERE d.db = ? AND d.path = ? AND f.state = ? "
            "AND f.acked = f.size",
            (self._number, folder, CLEAN),
        )
        found = {}
        for row in rows:
            record = record_of(row[6:])
            if record is not None:
                key = Key(row[0], row[1])
                found[row[1]] = (
                    PruneCandidate(key, row[2] + b"/" + row[1], row[3], row[4], record),
                    bool(row[5]),
                )
        return found

    def carry_out(self, plan: PrunePlan, session: TargetSession, *, deep: bool = True) -> Iterator[Done]:
        """Prune the planned files, one after the other; `deep`: after reading each back.

        Raises:
            LinkError: the master cannot be reached; files that were not reported as done stay.
            PruneError: the ledger cannot be written; the same.
        """
        for chosen in plan.chosen:
            parts = (chosen, *chosen.others)
            if chosen.others:
                done = self._tried(chosen, chosen.size, partial(self._check_all, parts, session, deep=deep))
                if done.stays:
                    yield done
                    continue
            for one in parts:  # of several the content was compared just now
                take = partial(self._take, one, session, deep=deep and not chosen.others)
                done = self._tried(one, one.local.size, take)
                yield done
                if done.stays:
                    break  # a complete checkpoint must not lack files

    def _tried(self, one: PruneCandidate, size: int, how: Callable[[], None]) -> Done:
        stays = ""
        try:
            with _ledger_errors():
                how()
        except LinkError:
            raise
        except (StaysError, TargetError) as error:
            stays = str(error)
        except OSError as error:
            stays = error.strerror or str(error)
        return Done(os.fsdecode(one.path), size, stays)

    def _check_all(self, parts: Sequence[PruneCandidate], session: TargetSession, *, deep: bool) -> None:
        for one in parts:
            self._check_there(one, session, deep=deep)

    def _check_there(self, one: PruneCandidate, session: TargetSession, *, deep: bool) -> bytes:
        """SHA-256 of a file that is unchanged on the master."""
        _on_master(session, one)
        sha = self._sha(one)
        if deep and _read_back(session, one) != sha:
            raise StaysError("the master's content is not what was sent; see: rla verify --fix")
        return sha

    def _take(self, one: PruneCandidate, session: TargetSession, *, deep: bool) -> None:
        sha = self._check_there(one, session, deep=deep)
        with self._folder(one.path) as (folder, name):
            _check_here(folder, name, one.local)
            if not self._claim(one):
                raise StaysError("it has changed, is to be confirmed again, or somebody else prunes it")
            try:
                self._note(one, sha, folder)
                _is_another_folder(session, one)
                _on_master(session, one)
                _check_here(folder, name, one.local)
                if not take_away(folder, name, one.local):
                    raise StaysError(_CHANGED_HERE)  # noqa: TRY301 - the claim is given back below
            except BaseException:
                self._unclaim(one, folder)
                raise
            os.fsync(folder)

    def _sha(self, one: PruneCandidate) -> bytes:
        """SHA-256 of the sent bytes; of a file that was appended to, of the same bytes here."""
        if one.record.sha256 is not None:
            return one.record.sha256
        found = fingerprint(self._descriptor, one.path, one.local.size)
        if (found.size, found.crc) != (one.local.size, one.record.crc):
            raise StaysError("it differs from what was sent; the next scan sends it again")
        self._update("UPDATE files SET sha256 = ? WHERE folder = ? AND name = ?", found.sha256, *one.key)
        return found.sha256

    def _claim(self, one: PruneCandidate) -> bool:
        local = one.local
        return self._update(
            "UPDATE files SET state = ? WHERE folder = ? AND name = ? AND state = ? AND ino = ? AND size = ? "
            "AND mtime_ns = ? AND ctime_ns = ? AND acked = ? AND check_at IS NULL",
            PRUNED,
            *one.key,
            *(CLEAN, *local.version, local.size),
        )

    def _unclaim(self, one: PruneCandidate, folder: int) -> None:
        """Restore the row of a file that stays, if it is still here."""
        if os.path.lexists(os.path.join(self._root, one.path)):
            drop_note(f"/proc/self/fd/{folder}", os.fsdecode(one.key.name))
            states = (CLEAN, *one.key, PRUNED)
            self._update("UPDATE files SET state = ? WHERE folder = ? AND name = ? AND state = ?", *states)

    def _update(self, statement: str, *values: object) -> bool:
        return self._db.execute(statement, values).rowcount == 1

    def _note(self, one: PruneCandidate, sha: bytes, folder: int) -> None:
        local = one.local
        mode = copy_mode(os.stat(one.key.name, dir_fd=folder, follow_symlinks=False).st_mode)
        path = Path(f"/proc/self/fd/{folder}") / os.fsdecode(one.key.name)
        is_mark = one.key.name == sharded_order.MARK and sharded_order.split(one.kind, one.path) is not None
        told = read_whole(path.parent / "..") if is_mark else read_stamp(path)
        order = None if told is None else told.order
        note = PrunedFile(
            os.fsdecode(one.path),
            local.size,
            sha.hex(),
            local.mtime_ns,
            self._target,
            time.time(),
            mode,
            order,
        )
        write_note(f"/proc/self/fd/{folder}", note)

    @contextmanager
    def _folder(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Descriptor of the folder of a file, reached without following links, and the file's name."""
        *parts, name = path.split(b"/")
        with closing_fd(walk_root(self._descriptor, parts)) as folder:
            yield folder, name


@contextmanager
def _ledger_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise PruneError(f"the ledger cannot be read or written: {error}; nothing more is pruned") from error


def _check_here(folder: int, name: bytes, local: Local) -> None:
    if local_state(os.stat(name, dir_fd=folder, follow_symlinks=False)) != local:
        raise StaysError(_CHANGED_HERE)


def _on_master(session: TargetSession, one: PruneCandidate) -> None:
    found = session.stat(one.path)
    if found is None:
        raise StaysError("the master has lost it; see: rla verify --fix")
    if found != RemoteStat(one.local.size, one.record.remote_mtime_s):
        raise StaysError("the master's file is not as we left it; see: rla verify --fix")


def _is_another_folder(session: TargetSession, one: PruneCandidate) -> None:
    """Check that the master's root is not this data root (NFS, a link), which would be the only copy.

    Notes are never sent to the master; the note that was just written appears there only if both are one.
    """
    folder, name = map(os.fsdecode, os.path.split(one.path))
    if session.stat(os.fsencode(note_path(folder, name))) is not None:
        raise StaysError("the master's root seems to be this very data root, so there is one copy only")


def _read_back(session: TargetSession, one: PruneCandidate) -> bytes:
    size = one.local.size
    found = fingerprint_of(lambda at, count: session.read(one.path, at, count), size)
    if found.size < size:
        raise StaysError(f"the master's file ends at {found.size} of {size} bytes")
    return found.sha256


def is_pruned(root: bytes, path: bytes) -> bool:
    """Whether `path` (below the data root) is missing and has a note.

    A note that is unreadable, or whose presence is unknown, counts, since deletions on the master depend on
    it.
    """
    if os.path.lexists(os.path.join(root, path)):
        return False
    folder, _, name = path.rpartition(b"/")
    try:
        os.lstat(note_path(os.fsdecode(os.path.join(root, folder)), os.fsdecode(name)))
    except OSError as error:
        return not isinstance(error, (FileNotFoundError, NotADirectoryError))
    return True
