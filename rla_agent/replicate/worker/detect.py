"""What a database's files look like now: rescans, live items, hints; what changed goes into the ledger.

The looking half of `database.Database`. Belongs to the worker's thread. Times: `now` is the
monotonic clock; wall time is asked for only to see how long a file has rested.

Watches the items that ended last, by watchfiles: what somebody adds to them goes in a second.

A hint and nothing more (docs/adr/0005): live items are announced by the agent and looked at each
second, and a look at everything comes every minute, so an event that is lost costs a minute. Watched
are the folders of at most MAX_ITEMS items, because inotify takes a watch for each folder and a
database has millions.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.ledger.ledger import CLEAN, DROPPED, GONE, PARKED, PRUNED, Ledger
from rla_agent.replicate.ledger.rows import Drop, Key
from rla_agent.replicate.worker import plan
from rla_agent.replicate.worker.link import Link
from rla_agent.replicate.worker.plan import Health, Local
from rla_agent.replicate.worker.scan import Folder, ScanError, Scanner
from rla_agent.replicate.worker.send import SUMS_NAME, FolderMode, SettleError, settle
from rla_agent.replicate.worker.version import Job
from rla_client.contract.checkpoints import dropped, note_path
from rla_client.contract.files import open_root
from rla_client.contract.layout import ARCHIVED_TABLE, CHECKPOINT, FOLDER_KINDS, LOG
from rla_client.contract.textformat import printable

if TYPE_CHECKING:
    from rla_agent.replicate.worker.notify import Committed


def is_pruned(root: bytes, path: bytes) -> bool:
    """Whether `path` (below the data root) is not here and there is a note of it.

    A note that cannot be read, or whose presence cannot be told, counts: deleting on the master hangs on it.
    """
    if os.path.lexists(os.path.join(root, path)):
        return False
    folder, _, name = path.rpartition(b"/")
    try:
        os.lstat(note_path(os.fsdecode(os.path.join(root, folder)), os.fsdecode(name)))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


MAX_ITEMS: Final = 64  # of one database: with all kinds some hundred inotify watches
DEBOUNCE_MS: Final = 400
STEP_MS: Final = 200
REST_S: Final = 60.0  # after watchfiles failed: a name that is not UTF-8, no watches left
JOIN_S: Final = 2.0
MAX_PATHS: Final = 10_000  # reported and not yet taken; beyond, the look at everything finds them

_log = logging.getLogger("rla_agent.replicate")
RESCAN_S: Final = 60.0  # everything is looked at so often, if that is cheap:
SCAN_SHARE: Final = 50  # at least 50 times as long as it took
LIVE_S: Final = 1.0  # live items are looked at so often …
LIVE_SHARE: Final = 40  # … if that is cheap
RESUME_BYTES: Final = 1 << 20  # a temp file with less is not worth going on with
SETTLE_AT_ONCE: Final = 4
RUN_NAME: Final = b"run.json"
MODES_A_LOOK: Final = 5000  # files of an earlier release whose permissions are sent after each look
FOLDERS_A_LOOK: Final = 20_000  # folders that wait with theirs
_END: Final = object()
_LOGS: Final = LOG.encode() + b"/"
_CHECKPOINTS: Final = (f"{CHECKPOINT}/".encode(), f"{ARCHIVED_TABLE}/{CHECKPOINT}/".encode())


@dataclass
class Counters:
    """For status: since this worker started."""

    written_bytes: int = 0
    sent_files: int = 0
    sent_bytes: int = 0
    kept: int = 0
    last_success: float = 0.0


@dataclass
class Looking:
    """One database at one target."""

    number: int
    scanner: Scanner
    link: Link
    ledger: Ledger
    committed: Committed
    health: Health = field(default_factory=Health)
    counters: Counters = field(default_factory=Counters)
    problem: str = ""
    host: str = ""
    mirror: bool = False
    append_every_s: float = 0.0

    def __post_init__(self) -> None:
        """Open the data root."""
        self.descriptor = -1
        self._flying: dict[Key, Job] = {}
        self._going: dict[Key, Drop] = {}  # being deleted on the master: nothing is sent under their names
        self._again: set[Key] = set()
        self._ready: set[Key] = set()
        self._paced: dict[Key, float] = {}
        self._appends = plan.Appends()
        self._live: dict[bytes, str] = {}
        self._progress: dict[Key, int] = {}
        self._ended: set[str] = set()
        self._recent: list[tuple[int, str]] = []  # (end, item), the last one last
        self._fleet: tuple[float, bytes] = (0.0, b"")
        self._modes: dict[int, FolderMode] = {}
        self._unknown_modes = 0
        self._scan: Iterator[object] | None = None
        self._scan_due = self._live_due = 0.0
        self._scan_cost = 0.0
        self._looks_failed = 0
        temps = sorted(self.ledger.temps(self.number), key=lambda temp: temp.acked)
        large = [temp for temp in temps if temp.acked >= RESUME_BYTES and self.ledger.waits(temp.key)]
        self._partial = {temp.key: temp for temp in large}
        kept = {temp.temp for temp in self._partial.values()}
        self._orphans = [temp for temp in temps if temp.temp not in kept]

    # -- looking ---------------------------------------------------------------------------

    def look(self, now: float, budget_s: float) -> bool:
        """Go on looking for at most `budget_s`; True while there is more to look at."""
        if self._scan is None and now >= self._scan_due:
            self._scan = self._everything(now)
            self._scan_cost = 0.0
        try:
            if now >= self._live_due:
                self._look_at_live(now)
            if self._scan is None:
                return False
            began = time.monotonic()
            while time.monotonic() - began < budget_s:
                if next(self._scan, _END) is _END:
                    self._scan = None
                    self._scan_due = now + max(RESCAN_S, SCAN_SHARE * self._scan_cost)
                    break
            self._scan_cost += time.monotonic() - began
        except ScanError as error:
            self._look_failed(error, now)
        return self._scan is not None

    def _look_failed(self, error: ScanError, now: float) -> None:
        """The data root is away, or this process short of something: what is known stays, and later again."""
        self.problem, self._scan = str(error), None
        wait = max(1.0, plan.backoff_s(self._looks_failed, random.random()))  # noqa: S311 - jitter
        self._looks_failed += 1
        self._scan_due = self._live_due = now + min(RESCAN_S, wait)

    def unread(self) -> list[dict[str, str]]:
        """Folders of which not all can be seen, for status."""
        return [
            {"path": os.fsdecode(path), "reason": why.reason, "fix": why.fix}
            for path, why in self.scanner.unread.items()
        ]

    def look_now(self) -> None:
        """Begin to look at everything with the next `look`."""
        self._scan_due = 0.0

    def hint_outputs(self, path: bytes, now: float) -> None:
        """An owned output (path below the data root) has grown."""
        self._hint(path, now)

    def hint_file(self, path: bytes, now: float) -> None:
        """A whole file was put in place: it need not rest first."""
        key = self._hint(path, now)
        if key is not None:
            self._ready.add(key)

    def hint_item(self, path: bytes, now: float) -> None:
        """Look at an item now; `path` is one of its folders, below the data root."""
        found = self.scanner._index(path.split(b"/"))  # noqa: SLF001 - the scanner's own rule
        if found is None:
            self.look_now()
            return
        try:
            for folder in self.scanner.item(found[1]):
                self._see_end(folder)
                self._compare(folder, now)
            for folder in self.scanner.archives(found[1]):
                for name in folder.files:
                    self._hint(folder.path + b"/" + name, now)
        except ScanError as error:
            self._look_failed(error, now)

    def hint_change(self, path: bytes, now: float) -> None:
        """Something was written at `path` (below the data root), perhaps not yet to its end."""
        self._hint(path, now)

    def worth_watching(self) -> list[str]:
        """Absolute paths of the folders of the items that ended last."""
        root = os.fsdecode(self.scanner.root)
        kinds = [kind for kind in self.scanner.scope.kinds if kind in FOLDER_KINDS]
        return [os.path.join(root, kind, item) for _, item in self._recent for kind in kinds]

    def _hint(self, path: bytes, now: float) -> Key | None:
        try:
            folder = self.scanner.one(path)
        except ScanError as error:
            self._look_failed(error, now)
            return None
        if folder is None:
            return None
        ((name, local),) = folder.files.items()
        key = Key(self.ledger.folder(self.number, folder.path, folder.kind, folder.item), name)
        self._mark(key, folder.kind, name, local, 0, now)
        return key

    def _everything(self, now: float) -> Iterator[None]:
        live: dict[bytes, str] = {}
        self._unknown_modes = 0
        for folder in self.scanner.everything():
            self._see_end(folder)
            if folder.live:
                live[folder.item] = folder.kind
            self._compare(folder, now)
            yield
        self._live = live
        self.problem = ""
        self._looks_failed = 0

    def _see_end(self, folder: Folder) -> None:
        """A run that has just ended, or has no sums yet: looked at once more when all of it is sent."""
        if folder.path != folder.item or folder.live or not folder.item.startswith(_LOGS):
            return
        self._note_ended(folder)
        just_ended = self._live.pop(folder.item, None) is not None
        if RUN_NAME in folder.files and (SUMS_NAME not in folder.files or just_ended):
            self._ended.add(os.fsdecode(folder.item.partition(b"/")[2]))

    def _note_ended(self, folder: Folder) -> None:
        if RUN_NAME not in folder.files:
            return
        ended = folder.files[RUN_NAME].mtime_ns
        if len(self._recent) >= MAX_ITEMS and ended <= self._recent[0][0]:
            return
        item = os.fsdecode(folder.item.partition(b"/")[2])
        recent = [known for known in self._recent if known[1] != item]
        self._recent = sorted([*recent, (ended, item)])[-MAX_ITEMS:]

    def settle(self, now: float) -> None:
        """Write the sums of ended runs that are on the master, one at a time."""
        if not self._open_root():
            return
        for item in list(self._ended)[:SETTLE_AT_ONCE]:
            if any(os.fsdecode(job.due.item).endswith(item) for job in self._flying.values()):
                continue
            try:
                compact = self.append_every_s > 0
                path = settle(
                    self.ledger, self.number, self.scanner.root, self.descriptor, item, compact=compact
                )
            except SettleError as error:
                self.problem = printable(str(error))
                path = b""
            if path is None:
                continue
            self._ended.discard(item)
            if path:
                self.hint_file(path, now)

    def _look_at_live(self, now: float) -> None:
        began = time.monotonic()
        for item in {os.fsdecode(item.partition(b"/")[2]) for item in self._live}:
            for folder in self.scanner.item(item):
                self._see_end(folder)
                self._compare(folder, now)
        self._live_due = now + max(LIVE_S, LIVE_SHARE * (time.monotonic() - began))

    def _compare(self, folder: Folder, now: float) -> None:
        if folder.live:
            self._live[folder.item] = folder.kind
        known = self.ledger.states(self.number, folder.path)
        if not known and not folder.files and folder.mode is None:
            return
        number = self.ledger.folder(self.number, folder.path, folder.kind, folder.item)
        self._see_mode(number, folder)
        for name, local in folder.files.items():
            row = known.pop(name, None)
            if row is not None and row[0] == CLEAN:
                same = (local.ino, local.size, local.mtime_ns, local.ctime_ns) == row[1:5]
                if same and row[5] == local.size:
                    if row[6] != local.mode:
                        self._see_file_mode(Key(number, name), folder.kind, known=row[6] is not None, now=now)
                    continue
            elif row is not None and row[0] not in {GONE, PRUNED}:
                continue
            self._mark(Key(number, name), folder.kind, name, local, row[5] or 0 if row else 0, now)
        if folder.partial:
            return  # who is not seen may be there
        for name, row in known.items():
            key, path = Key(number, name), folder.path + b"/" + name
            self._vanished(key, path, sent=row[5] is not None, state=row[0])

    def _see_mode(self, number: int, folder: Folder) -> None:
        """Send a folder's permissions where they are others than the master's was given."""
        if folder.mode in {None, self.ledger.folder_mode(number)} or len(self._modes) >= FOLDERS_A_LOOK:
            return
        assert folder.mode is not None
        self._modes[number] = FolderMode(number, folder.path, folder.mode, folder.shared)

    def _see_file_mode(self, key: Key, kind: str, *, known: bool, now: float) -> None:
        """The same for a file that has not changed; those of an earlier release some at a time, and last."""
        self._unknown_modes += not known
        if key not in self._flying and self._unknown_modes <= MODES_A_LOOK:
            self.ledger.mark(key, self.number, plan.priority(kind, 0) if known else plan.LAST, 0, now)

    def _mark(self, key: Key, kind: str, name: bytes, local: Local, acked: int, now: float) -> None:
        if key in self._flying:
            self._again.add(key)
            return
        pending = max(0, local.size - acked) if plan.is_growing(kind, name) else local.size
        self.ledger.mark(key, self.number, plan.priority(kind, pending), pending, now)

    def _vanished(self, key: Key, path: bytes, *, sent: bool, state: int) -> None:
        if key in self._flying or state not in {CLEAN, 1, PARKED}:
            return
        self._drop_partial(key)
        if sent and is_pruned(self.scanner.root, path):  # the master's is the only copy: never deleted there
            self.ledger.set_state(key, PRUNED)
        elif sent and self.mirror and self._was_dropped(key, path):
            self.ledger.set_state(key, DROPPED)
        elif sent:
            self.ledger.set_state(key, GONE)
        else:
            self.ledger.forget(key)

    def _was_dropped(self, key: Key, path: bytes) -> bool:
        """Whether `max_to_keep`, and nobody else, took the version that was sent, or a later one, away."""
        if not path.startswith(_CHECKPOINTS):
            return False
        folder, _, name = os.fsdecode(os.path.join(self.scanner.root, path)).rpartition("/")
        noted, record = dropped(Path(folder)).get(name), self.ledger.record(key)
        return noted is not None and record is not None and noted >= record.local.mtime_ns

    def _drop_partial(self, key: Key) -> None:
        """Nobody continues what an earlier try left of a file."""
        partial = self._partial.pop(key, None)
        if partial is not None:
            self._orphans.append(partial)

    def _open_root(self) -> bool:
        if self.descriptor < 0:
            try:
                self.descriptor = open_root(self.scanner.root)
            except OSError as error:
                self.problem = f"{printable(os.fsdecode(self.scanner.root))}: {error.strerror}"
                return False
        return True


class Watch:
    """A thread that reports changed paths below some folders."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from the thread, when there is something to take."""
        self._wake = wake
        self._paths: queue.Queue[bytes] = queue.Queue(MAX_PATHS)
        self._folders: tuple[str, ...] = ()
        self._changed = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def set(self, folders: Iterable[str]) -> None:
        """Watch these folders and what is below them, and no others; absolute paths."""
        wanted = tuple(sorted(folders))
        if wanted == self._folders:
            return
        self._folders = wanted
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self._thread.start()

    def take(self) -> list[bytes]:
        """Changed paths, absolute, since the last call."""
        found: dict[bytes, None] = {}
        while True:
            try:
                found[self._paths.get_nowait()] = None
            except queue.Empty:
                return list(found)

    def close(self) -> None:
        """Stop watching."""
        self._stopping = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            folders = [folder for folder in self._folders if os.path.isdir(folder)]
            if not folders:
                self._changed.wait()
                continue
            try:
                self._watch(folders)
            except (OSError, RuntimeError, UnicodeError) as error:
                _log.info("watching rests, files are found by looking: %s", error)
                self._changed.wait(REST_S)

    def _watch(self, folders: list[str]) -> None:
        from watchfiles import watch  # noqa: PLC0415 - only once there is something to watch

        for changes in watch(
            *folders,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._changed,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            for _, path in changes:
                try:
                    self._paths.put_nowait(os.fsencode(path))
                except queue.Full:
                    break
            self._wake()
