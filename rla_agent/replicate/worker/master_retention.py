"""Retention on the master, which follows that of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import CLEAN, PRUNED, Key
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.in_flight import InFlight
from rla_agent.replicate.worker.scan import Folder, Scanner
from rla_client.contract.checkpoint.dropped_note import dropped
from rla_client.contract.layout import ARCHIVED_TABLE, CHECKPOINT, DROPPED_NOTE

_CHECKPOINTS: Final = (f"{CHECKPOINT}/".encode(), f"{ARCHIVED_TABLE}/{CHECKPOINT}/".encode())


class Dropped(NamedTuple):
    """A file of a dropped sharded checkpoint; `state`: of its row."""

    key: Key
    path: bytes
    sent: bool
    state: int


class MasterRetention:
    """Decides which files the master drops after `max_to_keep` dropped them here.

    Args:
        ledger: of the files on the master.
        number: of the database in it.
        scanner: of the data root.
        flight: files on their way.
        mirror: the master drops what `max_to_keep` drops.
    """

    def __init__(
        self, ledger: Ledger, number: int, scanner: Scanner, flight: InFlight, *, mirror: bool
    ) -> None:
        self._ledger, self._number, self._scanner, self._flight = ledger, number, scanner, flight
        self._mirror = mirror
        self._seen: dict[bytes, tuple[int, int]] = {}  # item → times of the note and of its folder

    def drops(self, key: Key, path: bytes) -> bool:
        """Whether the master is to drop a file that `max_to_keep`, and nobody else, removed here.

        It was the version that was sent, or a later one. Files of a sharded checkpoint that is incomplete on
        the master are dropped there, too: nobody could load it.
        """
        if not path.startswith(_CHECKPOINTS):
            return False
        sharded = sharded_order.split(CHECKPOINT, path)
        if not self._mirror and (sharded is None or self._may_be_whole(sharded[0])):
            return False
        which = path if sharded is None else sharded[0]
        folder, _, name = os.fsdecode(os.path.join(self._scanner.root, which)).rpartition("/")
        noted, record = dropped(Path(folder)).get(name), self._ledger.record(key)
        return noted is not None and record is not None and noted >= record.local.mtime_ns

    def _may_be_whole(self, checkpoint: bytes) -> bool:
        """Whether the master has a complete sharded checkpoint, or will with the files on their way."""
        on_its_way = any(
            job.due.path == sharded_order.own_folder(checkpoint) + b"/" + sharded_order.MARK
            for job in self._flight.jobs.values()
        )
        return on_its_way or sharded_order.is_called_whole(checkpoint, self._states)

    def see(self, above: Folder) -> Iterator[Dropped]:
        """Files of sharded checkpoints that `max_to_keep` dropped: no scan reports a missing folder's."""
        item = above.item
        if above.kind != CHECKPOINT or above.path != item:
            return
        folder = Path(os.fsdecode(os.path.join(self._scanner.root, item)))
        try:
            seen = (os.lstat(folder / DROPPED_NOTE).st_mtime_ns, os.lstat(folder).st_mtime_ns)
        except OSError:
            return
        if self._seen.get(item) == seen:
            return
        busy = False
        for name in dropped(folder):
            gone = item + b"/" + os.fsencode(name)
            if sharded_order.split(CHECKPOINT, gone + b"/x") is None or os.path.lexists(folder / name):
                continue
            if any(job.due.path.startswith(gone + b"/") for job in self._flight.jobs.values()):
                busy = True
                continue
            for inner in (sharded_order.own_folder(gone), gone):
                for below, row in self._states(inner).items():
                    key = Key(self._ledger.folder(self._number, inner, CHECKPOINT, item), below)
                    state = CLEAN if row[0] == PRUNED else row[0]  # notes are gone, too
                    yield Dropped(key, inner + b"/" + below, row[5] is not None, state)
        if not busy:
            self._seen[item] = seen

    def _states(self, folder: bytes) -> dict[bytes, tuple[int, ...]]:
        return self._ledger.states(self._number, folder)
