"""Hold of the checkpoint that is being sent.

It keeps retention from deleting the checkpoint here before the master has it. There is one hold at a time:
where a run saves faster than its link sends, other checkpoints come and go meanwhile, and the disk has one
checkpoint more than `max_to_keep`. Sharded ones are sent one after the other, since the link would be busy
with files of checkpoints that are dropped before they are complete. Where the master drops what retention
drops here (`mirror`), the newest one that has arrived stays, too, until a newer one has: else the master
would have none in between.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.ledger_rows import DIRTY
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.send_job import SendJob
from rla_client.contract.checkpoint.checkpoint_removal import remove_dropped
from rla_client.contract.checkpoint.sending_hold import hold
from rla_client.contract.layout import CHECKPOINT
from rla_client.contract.sharded_checkpoint.retention import remove_dropped_sharded

IDLE_S: Final = 60.0  # the hold ends where nothing of the checkpoint was sent for so long
CLOSE_S: Final = 10.0  # wait at `close` for removals under way
_FILE: Final = b".pt"  # names that retention knows; a sharded one is a folder


@dataclass(frozen=True, slots=True)
class Held:
    """A checkpoint that is held, by paths below the data root.

    `last_file`: its file that is sent last, and is locked by `descriptor`.
    """

    path: bytes
    last_file: bytes
    sharded: bool
    descriptor: int

    def has(self, path: bytes) -> bool:
        """Whether a file belongs to it."""
        return path == self.path or path.startswith(self.path + b"/")


class CheckpointHold:
    """At most one checkpoint of a data root, and with `mirror` the one that arrived last.

    Args:
        root: the data root.
        states: the ledger's states of a folder's files.
        mirror: the master drops what retention drops here.
    """

    def __init__(self, root: bytes, states: sharded_order.States, *, mirror: bool = False) -> None:
        self._root, self._states, self._mirror = root, states, mirror
        self._now: Held | None = None
        self._arrived: Held | None = None
        self._used_at = 0.0  # when a file of it was last on its way
        self._removing: list[threading.Thread] = []

    def given(self, jobs: Iterable[SendJob], now: float) -> None:
        """Hold the checkpoint of the first of these jobs, if none is held."""
        for job in jobs:
            path = job.due.path
            if self._now is not None or job.due.kind != CHECKPOINT or sharded_order.is_in_making(path):
                continue
            sharded = sharded_order.split(CHECKPOINT, path)
            if sharded is None and not path.endswith(_FILE):
                continue
            held = path if sharded is None else sharded[0]
            if self._arrived is not None and self._arrived.path == held:
                continue  # it is sent again, and held already
            last = path if sharded is None else held + sharded_order.MARK_BELOW
            with suppress(OSError):  # it is about to be removed, or there are no such locks: no hold
                descriptor = hold(os.path.join(self._root, last))
                self._now, self._used_at = Held(held, last, sharded is not None, descriptor), now

    def keeps_back(self, folder: bytes) -> bool:
        """Whether a sharded checkpoint has to wait for the held one."""
        return self._now is not None and self._now.sharded and folder != self._now.path

    def sent(self, job: SendJob) -> None:
        """End the hold of a checkpoint whose last file has arrived."""
        if self._now is not None and job.due.path == self._now.last_file:
            arrived, self._now = self._now, None
            former: Held | None = arrived
            if self._mirror and not self._is_older(arrived, self._arrived):
                self._arrived, former = arrived, self._arrived
            self._let_go(former)

    @staticmethod
    def _is_older(arrived: Held, kept: Held | None) -> bool:
        """Whether what has arrived was saved before what is kept: equal ones may arrive in any order."""
        if kept is None:
            return False
        return os.fstat(arrived.descriptor).st_mtime_ns < os.fstat(kept.descriptor).st_mtime_ns

    def look(self, jobs: Iterable[SendJob], now: float) -> None:
        """End the hold of a checkpoint that is no longer being sent; `jobs`: the senders' jobs."""
        held = self._now
        if held is None:
            return
        if any(held.has(job.due.path) for job in jobs):
            self._used_at = now
        elif now - self._used_at > IDLE_S or not self._is_due(held):
            self._now = None
            self._let_go(held)

    def _is_due(self, held: Held) -> bool:
        """Whether files of it wait to be sent."""
        folder, _, name = held.path.rpartition(b"/")
        if not held.sharded:
            row = self._states(folder).get(name)
            return row is not None and row[0] == DIRTY
        inner = (held.path, sharded_order.own_folder(held.path))
        return any(row[0] == DIRTY for one in inner for row in self._states(one).values())

    def _let_go(self, held: Held | None) -> None:
        """Remove checkpoints that retention dropped meanwhile, in a thread, since a large one takes long."""
        if held is None:
            return
        os.close(held.descriptor)
        self._removing = [thread for thread in self._removing if thread.is_alive()]
        self._removing.append(threading.Thread(target=self._remove, args=(held,), name="drop", daemon=True))
        self._removing[-1].start()

    def _remove(self, held: Held) -> None:
        path = Path(os.fsdecode(os.path.join(self._root, held.path)))
        with suppress(OSError):  # retention runs again at the next save
            (remove_dropped_sharded if held.sharded else remove_dropped)(path.parent, path.name)

    def close(self) -> None:
        """End the hold; waits a moment for removals under way."""
        former, self._now, self._arrived = (self._now, self._arrived), None, None
        for held in former:
            self._let_go(held)
        for thread in self._removing:
            thread.join(CLOSE_S)
