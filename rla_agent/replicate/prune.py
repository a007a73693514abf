"""Frees local disk: takes away files that are, byte for byte, on the master. At no instant there is no copy.

*Which files* (pure: `unfit`, `newest`, `choose`). Only kinds that nothing here reads by itself: `checkpoint`,
and if asked for `results` and `tmp_data`. Rows, parameters, code and archives always stay: the database's
queries, plots and resume need them, and they are small. Of `checkpoint` only files that `load_checkpoint` can
ask for, `<name>_<time-step>.pt`. A run that lives is left alone, and of each ended run the newest checkpoints
of each name stay. Oldest first, checkpoints before other kinds, `MAX_AT_ONCE` in one pass. What is not
confirmed (`ledger`) stays: it may be in the master's memory only.

*How each goes*, in this order:

1. The master's file is looked at: there, with the size and time of our last write. Then it is read
   whole and its SHA-256 compared with the ledger's (`deep=False` leaves the reading out).
2. The ledger's row goes from `CLEAN` to `PRUNED`, in one statement that also asks whether the row
   still is of the file as it lies here. Whoever else prunes at the same time loses here.
3. A note beside the file (`rla_client.contract.checkpoint.prune_notes`) says where it is; durable.
4. The note must not show on the master: else its root is this very folder (NFS), and what is read there
   is the only copy. The master's file is looked at again, and the local one; both must be as in 1.
5. The file is unlinked, and the folder fsynced. `take_away` sees to it that it is that file, and not a
   new one that took its name after the last look.

Killed before 5, the file is here and the next rescan puts the row back; killed after it, note and row tell of
it; killed within it, the next pass finishes it. Nothing of 2 and 3 is ever taken for a deletion by the user,
also with `replicate_retention: mirror`.

*Step 5.* A training process may put a new checkpoint in the file's place just before unlink(2), and no call
deletes a name only if it still means a certain file. So the file is moved to a temp name in its folder,
looked at there, and then deleted, or given its name back unless something later has that. Readers in between
find the note. After a SIGKILL in between, `settle` does the rest on the next pass: the file that the note is
about goes, any other gets its name back.

`AGENT.retention` prunes by itself (`Retention`), off by default, in a thread with connections of its own.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import sqlite3
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.target import LinkError, RemoteStat, Session, TargetError
from rla_agent.replicate.ledger import (
    CLEAN,
    PRUNED,
    RECORD_COLUMNS,
    Key,
    database_number,
    ledger_path,
    record_of,
    upgrade,
)
from rla_agent.replicate.worker.plan import Local, Record, copy_mode
from rla_agent.replicate.worker.source import (
    Folder,
    Scanner,
    Scope,
    fingerprint,
    fingerprint_of,
    local_state,
)
from rla_client.contract.checkpoint.checkpoint_age import oldest_first, save_time
from rla_client.contract.checkpoint.prune_notes import (
    PRUNABLE,
    PrunedFile,
    drop_note,
    note_path,
    read_note,
    write_note,
)
from rla_client.contract.checkpoint.stamp import read_stamp
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, claim_name
from rla_client.contract.filesystem.safe_paths import open_root, walk_root
from rla_client.contract.layout import CHECKPOINT, PRUNED_FOLDER
from rla_client.contract.process.descriptors import closing_fd

if TYPE_CHECKING:
    from rla_agent.replicate.settings import Target
    from rla_client.config.schema import AgentConfig

MAX_AT_ONCE: Final = 50_000  # files of one pass, 50 MB in memory; the next pass takes the next ones
MIN_FILE_BYTES: Final = 4096  # a smaller one frees no more than its note takes
_CHECKPOINT: Final = re.compile(r"(.+)[_-](-?[0-9]{1,19})\.pt", re.DOTALL)
_PREFIX: Final = os.fsencode(TEMP_PREFIX) + b"prune-"
_ASIDE: Final = re.compile(re.escape(_PREFIX) + rb"[0-9a-f]{8}-(.+)\Z", re.DOTALL)
MAX_NAME_BYTES: Final = 255 - len(_PREFIX) - len("01234567-")  # of a file that can be moved aside
UNKNOWN_REST_S: Final = 86400.0  # a run without run.json is taken for ended after so long without a row
LEDGER_WAIT_S: Final = 30.0
FIRST_S: Final = 5.0  # after the start of the process
EVERY_S: Final = 600.0
DAY_S: Final = 86400.0
MAX_WARNINGS: Final = 20  # of one pass: a master that lost its disk would fill the log
_log = logging.getLogger("rla_agent.replicate")
_OTHER_NAME: Final = "not named NAME_STEP.pt"
_UNCONFIRMED: Final = "not yet confirmed to be on the master's disk"
_SPARED: Final = "within the limits given"
_CHANGED_HERE: Final = "it has changed here meanwhile"


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
        return "of a kind that always stays"
    if kind == CHECKPOINT and _CHECKPOINT.fullmatch(name) is None:
        return _OTHER_NAME
    return f"smaller than {MIN_FILE_BYTES >> 10} KiB" if size < MIN_FILE_BYTES else ""


def newest(folder: Path, names: Iterable[str], count: int) -> set[str]:
    """Of a checkpoint folder's files the `count` that were saved last of each name."""
    series: dict[str, list[tuple[str, int]]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is not None:
            series.setdefault(match[1], []).append((name, int(match[2])))
    stay: set[str] = set()
    for found in series.values():
        if len(found) <= max(1, count):
            stay.update(name for name, _ in found)
            continue
        by_age = oldest_first(save_time(folder, name, step) for name, step in found)
        stay.update(one.name for one in by_age[-max(1, count) :])
    return stay


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

    `used_bytes`: what files of these kinds take here, also those that may not go; `now`: Unix seconds.
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
        """Open the ledger beside the worker; `target`: the master's name, see `settings.Target`.

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
        """Let go of the ledger and the data root."""
        self._db.close()
        os.close(self._descriptor)

    def plan(self, rules: Rules, now: float) -> Plan:
        """Which files would go by these rules; `now`: Unix seconds."""
        scanner = Scanner(self._root, Scope(host="", kinds=rules.kinds))
        used = 0
        kept: Counter[str] = Counter()

        def candidates() -> Iterator[Candidate]:
            nonlocal used
            for folder in self._settled(scanner):
                used += sum(local.size for local in folder.files.values())
                if folder.files and not self._ended(scanner, folder.item, now):
                    kept["of a run that has not ended"] += len(folder.files)
                elif folder.files:
                    for found in self._of_folder(folder, rules):
                        kept[_SPARED if isinstance(found, Candidate) else found] += 1
                        if isinstance(found, Candidate):
                            yield found

        with _ledger_errors():
            first = first_to_go(candidates(), rules)
        found = os.statvfs(self._root)
        free = found.f_bavail * found.f_frsize
        chosen = choose(first, rules, now=now, used_bytes=used, free_bytes=free)
        kept[_SPARED] -= len(chosen)
        return Plan(tuple(chosen), used, free, +kept)

    def _settled(self, scanner: Scanner) -> Iterator[Folder]:
        """All folders, after what killed passes left there is settled; what got its name back goes later."""
        for folder in scanner.everything():
            if folder.partial:
                continue  # the newest of its checkpoints may be the one that is not seen
            path = os.fsdecode(os.path.join(self._root, folder.path))
            if os.path.isdir(os.path.join(path, PRUNED_FOLDER)):
                with suppress(OSError), self._folder(folder.path + b"/.") as (here, _):
                    settle(here)
            yield folder

    def _of_folder(self, folder: Folder, rules: Rules) -> Iterator[Candidate | str]:
        """For each file: itself if it may go, else why it stays."""
        kept: set[str] = set()
        if folder.kind == CHECKPOINT and folder.path == folder.item:
            try:
                with self._folder(folder.path + b"/.") as (here, _):
                    held = Path(f"/proc/self/fd/{here}")
                    kept = newest(held, map(os.fsdecode, folder.files), rules.keep_newest)
            except OSError:
                return  # it went meanwhile
        rows = self._rows(folder.path)
        for name, local in folder.files.items():
            text = os.fsdecode(name)
            always = "newest of its run and name" if text in kept else unfit(folder.kind, text, local.size)
            candidate, confirmed = rows.get(name, (None, False))
            if always or len(name) > MAX_NAME_BYTES:
                yield always or _OTHER_NAME
            elif candidate is None:
                yield "not wholly on the master yet"
            elif candidate.local != local:
                yield "changed since it was sent"
            else:
                yield candidate if confirmed else _UNCONFIRMED

    def _ended(self, scanner: Scanner, item: bytes, now: float) -> bool:
        name = os.fsdecode(item.partition(b"/")[2])
        run = scanner.run(name)
        if run is not None:
            return not run.live
        with suppress(OSError):
            rows = os.path.join(self._root, os.fsencode(f"log/{name}/progress.csv"))
            return now - os.stat(rows).st_mtime > UNKNOWN_REST_S
        return False

    def _rows(self, folder: bytes) -> dict[bytes, tuple[Candidate, bool]]:
        """Name → file of a folder that the ledger holds as wholly on the master, and whether confirmed."""
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
                found[row[1]] = Candidate(key, row[2] + b"/" + row[1], row[3], row[4], record), bool(row[5])
        return found

    def carry_out(self, plan: Plan, session: Session, *, deep: bool = True) -> Iterator[Done]:
        """Take the planned files away, one after the other; `deep`: after reading each back.

        Raises:
            LinkError: the master is away; what was not said to be done stays.
            PruneError: the ledger cannot be written; the same.
        """
        for one in plan.chosen:
            stays = ""
            try:
                with _ledger_errors():
                    self._take(one, session, deep=deep)
            except LinkError:
                raise
            except (StaysError, TargetError) as error:
                stays = str(error)
            except OSError as error:
                stays = error.strerror or str(error)
            yield Done(os.fsdecode(one.path), one.local.size, stays)

    def _take(self, one: Candidate, session: Session, *, deep: bool) -> None:
        _on_master(session, one)
        sha = self._sha(one)
        if deep and _read_back(session, one) != sha:
            raise StaysError("the master's content is not what was sent; see: rla verify --fix")
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

    def _sha(self, one: Candidate) -> bytes:
        """SHA-256 of what was sent; of a file that grew there, of the same bytes here."""
        if one.record.sha256 is not None:
            return one.record.sha256
        found = fingerprint(self._descriptor, one.path, one.local.size)
        if (found.size, found.crc) != (one.local.size, one.record.crc):
            raise StaysError("it differs from what was sent; the next scan sends it again")
        self._update("UPDATE files SET sha256 = ? WHERE folder = ? AND name = ?", found.sha256, *one.key)
        return found.sha256

    def _claim(self, one: Candidate) -> bool:
        local = one.local
        return self._update(
            "UPDATE files SET state = ? WHERE folder = ? AND name = ? AND state = ? AND ino = ? AND size = ? "
            "AND mtime_ns = ? AND ctime_ns = ? AND acked = ? AND check_at IS NULL",
            PRUNED,
            *one.key,
            *(CLEAN, *local.version, local.size),
        )

    def _unclaim(self, one: Candidate, folder: int) -> None:
        """The file stays, if it is still here."""
        if os.path.lexists(os.path.join(self._root, one.path)):
            drop_note(f"/proc/self/fd/{folder}", os.fsdecode(one.key.name))
            states = (CLEAN, *one.key, PRUNED)
            self._update("UPDATE files SET state = ? WHERE folder = ? AND name = ? AND state = ?", *states)

    def _update(self, statement: str, *values: object) -> bool:
        return self._db.execute(statement, values).rowcount == 1

    def _note(self, one: Candidate, sha: bytes, folder: int) -> None:
        local = one.local
        mode = copy_mode(os.stat(one.key.name, dir_fd=folder, follow_symlinks=False).st_mode)
        stamp = read_stamp(Path(f"/proc/self/fd/{folder}") / os.fsdecode(one.key.name))
        order = None if stamp is None else stamp.order
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
    size = one.local.size
    found = fingerprint_of(lambda at, count: session.read(one.path, at, count), size)
    if found.size < size:
        raise StaysError(f"the master's file ends at {found.size} of {size} bytes")
    return found.sha256


def take_away(folder: int, name: bytes, local: Local) -> bool:
    """Delete a file of an open folder if it still is as it was looked at (`local`).

    False where another file had the name, of MAX_NAME_BYTES at most: that one is kept.

    Raises:
        OSError: it is not there, or cannot be deleted.
    """
    aside = _PREFIX + os.urandom(4).hex().encode() + b"-" + name
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    try:
        found = os.stat(aside, dir_fd=folder, follow_symlinks=False)
        # st_ctime is that of the rename
        if (found.st_ino, found.st_size, found.st_mtime_ns) == (local.ino, local.size, local.mtime_ns):
            os.unlink(aside, dir_fd=folder)
            return True
    except OSError:
        _give_back(folder, aside, name)
        raise
    _give_back(folder, aside, name)
    return False


def settle(folder: int) -> None:
    """Finish what killed pruners left in an open folder; what cannot be done now waits for the next pass."""
    with suppress(OSError):
        for entry in os.listdir(folder):
            match = _ASIDE.match(os.fsencode(entry))
            if match is not None:
                _settle_one(folder, match[0], match[1])


def _settle_one(descriptor: int, aside: bytes, name: bytes) -> None:
    found = os.stat(aside, dir_fd=descriptor, follow_symlinks=False)
    note = read_note(f"/proc/self/fd/{descriptor}", os.fsdecode(name))
    if note is not None and (found.st_size, found.st_mtime_ns) == (note.size, note.mtime_ns):
        os.unlink(aside, dir_fd=descriptor)  # all was checked before it was moved
    else:
        _give_back(descriptor, aside, name)


def _give_back(folder: int, aside: bytes, name: bytes) -> None:
    """Give a file its name back, unless a later one has it, which has then taken its place."""
    if claim_name(aside, name, dir_fd=folder):
        return
    if not stat.S_ISDIR(os.stat(aside, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(aside, dir_fd=folder)


def is_pruned(root: bytes, path: bytes) -> bool:
    """Whether `path` (below the data root) is not here and there is a note of it.

    A note that cannot be read, or whose presence cannot be told, counts: deleting on the master hangs on it.
    """
    if os.path.lexists(os.path.join(root, path)):
        return False
    folder, _, name = path.rpartition(b"/")
    try:
        os.lstat(note_path(os.fsdecode(os.path.join(root, folder)), os.fsdecode(name)))
    except OSError as error:
        return not isinstance(error, (FileNotFoundError, NotADirectoryError))
    return True


@dataclass(frozen=True, slots=True)
class Kept:
    """A database whose config asks for retention."""

    root: str
    target: Target
    settings: AgentConfig


def rules_of(settings: AgentConfig, root: str) -> Rules:
    """What `AGENT.retention_…` says, for the disk that `root` lies on.

    Raises:
        OSError: the data root is not there.
    """
    disk = os.statvfs(root)
    return Rules(
        kinds=settings.retention_kinds,
        older_than_s=settings.retention_age_days * DAY_S,
        max_bytes=settings.retention_max_bytes,
        free_bytes=int(settings.retention_free_fraction * disk.f_blocks * disk.f_frsize),
        keep_newest=settings.retention_keep_newest,
    )


class Retention:
    """Starts a pass now and then; `poll` never waits."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._thread: threading.Thread | None = None
        self._due = time.monotonic() + FIRST_S

    def poll(self, now: float, kept: Sequence[Kept]) -> None:
        """Begin a pass over these databases when it is time for one; `now`: monotonic seconds."""
        if now < self._due or not kept or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = now + EVERY_S
        self._thread = threading.Thread(target=self._pass, args=(list(kept),), name="retention", daemon=True)
        self._thread.start()

    def _pass(self, kept: list[Kept]) -> None:
        for one in kept:
            try:
                self._prune(one)
            except (RlaError, OSError, sqlite3.Error) as error:
                _log.warning("retention of %s: %s", one.root, error)
            except Exception:  # noqa: BLE001 - the top of a thread; the next pass tries again
                _log.exception("retention of %s", one.root)

    def _prune(self, one: Kept) -> None:
        pruner = Pruner(self._state, one.root, one.target.name)
        gone = size = stays = 0
        try:
            plan = pruner.plan(rules_of(one.settings, one.root), time.time())
            if not plan.chosen:
                return
            with closing(one.target.open()) as session:
                for entry in pruner.carry_out(plan, session):
                    if not entry.stays:
                        gone, size = gone + 1, size + entry.size
                        continue
                    stays += 1
                    if stays <= MAX_WARNINGS:
                        _log.warning("retention: %s stays: %s", entry.path, entry.stays)
        finally:
            pruner.close()
            if gone:
                _log.info("retention of %s: %d file(s), %d bytes freed here", one.root, gone, size)
            if stays > MAX_WARNINGS:
                _log.warning("retention of %s: %d more file(s) stay", one.root, stays - MAX_WARNINGS)
