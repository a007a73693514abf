"""Jobs of a database's files that are due."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rla_agent.replicate.backend.remote_stat import Twin
from rla_agent.replicate.file_state import Local, Owned
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import CLEAN, DROPPED, Drop, Due, Key
from rla_agent.replicate.worker import file_decision, pacing, sharded_order
from rla_agent.replicate.worker.changed_files import ChangedFiles
from rla_agent.replicate.worker.committed import Committed
from rla_agent.replicate.worker.confirm import Confirmations
from rla_agent.replicate.worker.file_decision import Append, ReplaceFile, SetMode, UpToDate, Wait
from rla_agent.replicate.worker.hold_while_sent import CheckpointHold
from rla_agent.replicate.worker.in_flight import InFlight
from rla_agent.replicate.worker.leftovers import Leftovers
from rla_agent.replicate.worker.scan import Scanner
from rla_agent.replicate.worker.send_job import SendJob
from rla_agent.replicate.worker.sharded_lost import of_whole
from rla_agent.replicate.worker.source_file import fingerprint, local_state
from rla_client.contract.layout import CHECKPOINT, CODE

BATCH_FILES: Final = 64
LINKED_BYTES: Final = 16 << 20  # larger code files are sent without a link; it is read into memory
MAX_PACED: Final = 20_000


@dataclass
class DueJobs:
    """Makes jobs of due files, as far as they may be sent now.

    Attributes:
        number: of the database in the ledger.
        going: files that are being deleted on the master: nothing is sent under their names.
        hold: the checkpoint that is being sent.
        append_every_s: pause between two appends of one item.
    """

    number: int
    scanner: Scanner
    ledger: Ledger
    committed: Committed
    changes: ChangedFiles
    confirmations: Confirmations
    flight: InFlight
    leftovers: Leftovers
    going: Mapping[Key, Drop]
    hold: CheckpointHold
    append_every_s: float

    def __post_init__(self) -> None:
        """Begin without any sent file."""
        self._paced: dict[Key, float] = {}
        self._appends = pacing.Appends()
        self._waits: dict[tuple[bytes, int], bool] = {}  # sharded checkpoint and sort → waits for others

    def pace(self, key: Key, at: float) -> None:
        """Read a growing file again not before `at`."""
        if len(self._paced) > MAX_PACED:
            self._paced.clear()
        self._paced[key] = at

    def forget_order(self) -> None:
        """Forget which files of sharded checkpoints wait."""
        self._waits.clear()

    def take(self, due: list[Due], now: float, root: int, max_bytes: int) -> list[SendJob]:
        """The next batch of due files; `root`: descriptor of the data root."""
        jobs: list[SendJob] = []
        total = 0
        for row in due:
            if row.key in self.flight.jobs or row.key in self.going or self.confirmations.is_checked(row.key):
                continue
            job = self._job(row, now, root)
            if job is None:
                continue
            if jobs and (total + job.size > max_bytes or len(jobs) >= BATCH_FILES):
                if isinstance(job.action, Append):
                    self.flight.left_behind.add(row.key)
                break
            jobs.append(self.leftovers.resumed(job))  # only once it is sure to be sent
            total += job.size
        return jobs

    def _job(self, due: Due, now: float, root: int) -> SendJob | None:
        full = os.path.join(self.scanner.root, due.path)
        try:
            local = local_state(os.lstat(full))
        except OSError:
            self.changes.vanished(due.key, due.path, sent=due.record is not None, state=1)
            return None
        action = self._decide(due, full, local, now)
        if isinstance(action, UpToDate):
            self.flight.settle(due.key)
            self.ledger.set_state(due.key, CLEAN)
            return None
        at = now + max(0.1, action.seconds) if isinstance(action, Wait) else self._earliest(due, action, now)
        if isinstance(action, Wait) or at > now:
            self.ledger.retry_at(due.key, at, failed=False)
            return None
        self.flight.left_behind.discard(due.key)
        whole = of_whole(self.ledger, self.number, due.path, due.item)
        twin = self._twin(due, local, root)
        return SendJob(due, action, _temp(due.path), twin=twin, local=local, of_whole=whole)

    def _earliest(self, due: Due, action: ReplaceFile | Append | SetMode, now: float) -> float:
        """When a file may be read, and appended to, again."""
        paced = self._paced.get(due.key, 0.0)
        if now < paced and (
            isinstance(action, Append) or (isinstance(action, ReplaceFile) and action.compare)
        ):
            return paced
        if isinstance(action, Append) and due.key not in self.flight.left_behind:
            return self._appends.next(due.item, due.seen, now, self.append_every_s)
        return now

    def _twin(self, due: Due, local: Local, root: int) -> Twin | None:
        """A file on the master that has the content of this code file."""
        if due.kind != CODE or due.record is not None or not 0 < local.size <= LINKED_BYTES:
            return None
        try:
            sha256 = fingerprint(root, due.path, local.size).sha256
        except OSError:
            return None  # the sender reports the fault
        return self.ledger.twin(self.number, sha256)

    def _decide(self, due: Due, full: bytes, local: Local, now: float) -> file_decision.Action:
        growing = file_decision.is_growing(due.kind, due.key.name)
        owned: Owned | None = self.committed.lookup(full) if growing else None  # outputs are of these names
        rest = file_decision.OVERDUE_S if due.key in self.flight.ready else time.time() - local.mtime_ns / 1e9
        action = file_decision.decide(
            local, owned, due.record, growing=growing, rest_s=rest, waited_s=now - due.seen
        )
        sharded = None if isinstance(action, UpToDate) else sharded_order.split(due.kind, due.path)
        if sharded is not None and not self._goes_in_order(due, *sharded):
            return Wait(sharded_order.LOOK_AGAIN_S)
        return action

    def states(self, folder: bytes) -> dict[bytes, tuple[int, ...]]:
        """See `Ledger.states`."""
        return self.ledger.states(self.number, folder)

    def _goes_in_order(self, due: Due, checkpoint: bytes, below: bytes) -> bool:
        """Whether a file of a sharded checkpoint may be sent now; another save's `whole.json` goes first."""
        if self.hold.keeps_back(checkpoint) and not sharded_order.is_in_making(due.path):
            return False
        place = checkpoint, sharded_order.sort_of(below)
        if place not in self._waits:
            self._waits[place] = sharded_order.waits_for_others(
                self.scanner.root, checkpoint, below, self.states
            )
        if self._waits[place]:
            return False
        mark = self._mark_of(checkpoint, due.item)
        if due.key == mark:
            return True
        if mark in self.flight.jobs:
            return False
        if sharded_order.is_of_another_save(self.scanner.root, checkpoint, self.states):
            self.ledger.set_state(mark, DROPPED)
            return False
        return True

    def _mark_of(self, checkpoint: bytes, item: bytes) -> Key:
        """The `whole.json` of a sharded checkpoint."""
        own = sharded_order.own_folder(checkpoint)
        return Key(self.ledger.folder(self.number, own, CHECKPOINT, item), sharded_order.MARK)


def _temp(path: bytes) -> bytes:
    folder, slash, _ = path.rpartition(b"/")
    return folder + slash + b".rla-tmp-" + secrets.token_hex(8).encode()
