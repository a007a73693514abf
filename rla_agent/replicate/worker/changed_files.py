"""Changed files of a database, on their way into the ledger.

Everything is scanned periodically, live items each second, and paths of a hint at once. Where a file is gone
here, notes decide about the master's copy.

Belongs to the worker's thread. `now` is the monotonic clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

from rla_agent.replicate.file_state import Local
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import CLEAN, DROPPED, GONE, PARKED, PRUNED, Key
from rla_agent.replicate.prune.pruner import is_pruned
from rla_agent.replicate.worker import file_decision, retry_backoff, sharded_order
from rla_agent.replicate.worker.ended_runs import EndedRuns
from rla_agent.replicate.worker.in_flight import InFlight
from rla_agent.replicate.worker.leftovers import Leftovers
from rla_agent.replicate.worker.master_retention import MasterRetention
from rla_agent.replicate.worker.read_faults import ScanError
from rla_agent.replicate.worker.scan import Folder, Scanner, item_name
from rla_agent.replicate.worker.send_job import FolderMode
from rla_agent.replicate.worker.sharded_parts import WaitingParts

RESCAN_S: Final = 60.0  # everything is scanned so often, if that is cheap:
SCAN_SHARE: Final = 50  # at least 50 times as long as it took
LIVE_S: Final = 1.0  # live items are scanned so often …
LIVE_SHARE: Final = 40  # … if that is cheap
FOLDERS_A_LOOK: Final = 20_000  # folders whose modes wait
_END: Final = object()


class ChangedFiles:
    """The changed files of a data root.

    Attributes:
        live: folders of the items that live.
        ended: runs that do not.
        modes: permission bits of folders that are to be sent, by the folder's number.
        problem: why part of the data root is unknown or unreadable.
    """

    def __init__(  # noqa: PLR0913 - what it tells of changes
        self,
        ledger: Ledger,
        number: int,
        scanner: Scanner,
        flight: InFlight,
        leftovers: Leftovers,
        parts: WaitingParts,
        *,
        mirror: bool,
    ) -> None:
        """`number`: of the database in the ledger; `mirror`: the master drops what `max_to_keep` drops."""
        self._ledger, self._number, self._scanner = ledger, number, scanner
        self._flight, self._leftovers, self._parts = flight, leftovers, parts
        self.live: set[bytes] = set()
        self.ended = EndedRuns(ledger, number, scanner)
        self.modes: dict[int, FolderMode] = {}
        self.problem = ""
        self._retention = MasterRetention(ledger, number, scanner, flight, mirror=mirror)
        self._scan: Iterator[object] | None = None
        self._scan_due = self._live_due = 0.0
        self._scan_cost = 0.0
        self._looks_failed = 0

    def look(self, now: float, budget_s: float) -> bool:
        """Continue the scan for at most `budget_s`; True while there is more to scan."""
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
        """Postpone the scan where the data root is missing or this process short of resources."""
        self.problem, self._scan = str(error), None
        wait = max(1.0, retry_backoff.backoff_s(self._looks_failed, random.random()))  # noqa: S311 - jitter
        self._looks_failed += 1
        self._scan_due = self._live_due = now + min(RESCAN_S, wait)

    def look_now(self) -> None:
        """Begin a scan of everything with the next `look`."""
        self._scan_due = 0.0

    def hint(self, path: bytes, now: float, *, whole: bool = False) -> None:
        """Note a changed file below the data root; `whole`: it was put in place and need not rest first."""
        if path.endswith(sharded_order.PART) and sharded_order.is_in_making(path):
            self.hint_item(path.partition(sharded_order.MAKING)[0], now)  # all of it may be sent now
            return
        try:
            folder = self._scanner.one(path)
        except ScanError as error:
            self._look_failed(error, now)
            return
        if folder is None:
            return
        ((name, local),) = folder.files.items()
        key = Key(self._ledger.folder(self._number, folder.path, folder.kind, folder.item), name)
        record = self._ledger.record(key)
        same_file = record is not None and record.local.ino == local.ino
        self._mark(key, folder.kind, local, record.acked if record is not None and same_file else 0, now)
        if record is not None and record.local.version != local.version:
            self.ended.see_late_change(folder, name)
        if whole:
            self._flight.ready.add(key)  # until it is sent, or there is nothing to send

    def hint_item(self, path: bytes, now: float) -> None:
        """Scan an item now; `path` is one of its folders, below the data root."""
        found = self._scanner.index(path.split(b"/"))
        if found is None:
            self.look_now()
            return
        try:
            for folder in self._scanner.item(found[1]):
                self.ended.see(folder, self.live)
                self._compare(folder, now)
            self._look_at_jobs(now)
            for folder in self._scanner.archives(found[1]):
                for name in folder.files:
                    self.hint(folder.path + b"/" + name, now)
        except ScanError as error:
            self._look_failed(error, now)

    def _everything(self, now: float) -> Iterator[None]:
        live: set[bytes] = set()
        for folder in self._scanner.everything():
            self.ended.see(folder, self.live)
            if folder.live:
                live.add(folder.item)
            self._compare(folder, now)
            yield
        self._look_at_jobs(now)
        self.live = live
        self.problem = ""
        self._looks_failed = 0

    def _look_at_live(self, now: float) -> None:
        began = time.monotonic()
        for item in set(map(item_name, self.live)):
            for folder in self._scanner.item(item):
                self.ended.see(folder, self.live)
                self._compare(folder, now)
        if self.live:
            self._look_at_jobs(now)
        self._live_due = now + max(LIVE_S, LIVE_SHARE * (time.monotonic() - began))

    def _look_at_jobs(self, now: float) -> None:
        for folder in self._scanner.jobs():
            self._compare(folder, now)

    def _compare(self, folder: Folder, now: float) -> None:
        if folder.live:
            self.live.add(folder.item)
        self._parts.see(folder, self._flight.jobs.values())
        known = self._ledger.states(self._number, folder.path)
        if not known and not folder.files and folder.mode is None:
            return
        number = self._ledger.folder(self._number, folder.path, folder.kind, folder.item)
        self._see_dropped(folder)
        self._see_mode(number, folder)
        for name, local in folder.files.items():
            row = known.pop(name, None)
            key = Key(number, name)
            if row is not None and row[:-1] == (CLEAN, *local.version, local.size):
                if row[-1] != local.mode and key not in self._flight.jobs:
                    self._ledger.mark(key, self._number, file_decision.priority(folder.kind, 0), 0, now)
            elif row is None or row[0] in {CLEAN, GONE, PRUNED}:
                acked = row[5] or 0 if row and row[1] == local.ino else 0
                self._mark(key, folder.kind, local, acked, now)
                if row is not None:
                    self.ended.see_late_change(folder, name)
        if folder.partial:
            return  # files of an unreadable folder may be there
        for name, row in known.items():
            key, path = Key(number, name), folder.path + b"/" + name
            self.vanished(key, path, sent=row[5] is not None, state=row[0])

    def _see_dropped(self, folder: Folder) -> None:
        """Note the files that went with sharded checkpoints of a folder."""
        for dropped in self._retention.see(folder):
            self.vanished(dropped.key, dropped.path, sent=dropped.sent, state=dropped.state)

    def _see_mode(self, number: int, folder: Folder) -> None:
        """Send a folder's permissions where they differ from those on the master."""
        if folder.mode in {None, self._ledger.folder_mode(number)} or len(self.modes) >= FOLDERS_A_LOOK:
            return
        assert folder.mode is not None
        self.modes[number] = FolderMode(number, folder.path, folder.mode, folder.shared)

    def _mark(self, key: Key, kind: str, local: Local, acked: int, now: float) -> None:
        if key in self._flight.jobs:
            self._flight.again.add(key)
            return
        pending = max(0, local.size - acked) if file_decision.is_growing(kind, key.name) else local.size
        self._ledger.mark(key, self._number, file_decision.priority(kind, pending), pending, now)

    def vanished(self, key: Key, path: bytes, *, sent: bool, state: int) -> None:
        """Handle a file that is gone here; `state`: of its row."""
        if key in self._flight.jobs or state not in {CLEAN, 1, PARKED}:
            return
        self._leftovers.give_up(key)
        self._flight.settle(key)
        if sharded_order.is_in_making(path) and (sent or self._ledger.assume_arrived(key)):
            self._ledger.set_state(key, GONE)  # see `WaitingParts`
        elif sent and is_pruned(
            self._scanner.root, path
        ):  # the master's is the only copy: never deleted there
            self._ledger.set_state(key, PRUNED)
        elif sent and self._retention.drops(key, path):
            self._ledger.set_state(key, DROPPED)
        elif sent:
            self._ledger.set_state(key, GONE)
        else:
            self._ledger.forget(key)
