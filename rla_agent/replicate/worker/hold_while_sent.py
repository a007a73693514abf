"""Hold of the checkpoint that is being sent, so that retention leaves it here until the master has it.

One at a time: the others of a run that saves faster than its link sends come and go meanwhile, and the disk
holds one checkpoint more than `max_to_keep` says. Sharded ones are sent one after the other, for the link
would carry files of those that come and go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_agent.replicate.ledger_rows import DIRTY
from rla_agent.replicate.worker import sharded_order
from rla_agent.replicate.worker.send_job import SendJob
from rla_client.contract.checkpoint.checkpoint_retention import remove_dropped
from rla_client.contract.checkpoint.sending_hold import hold
from rla_client.contract.layout import CHECKPOINT
from rla_client.contract.sharded_checkpoint.retention import remove_dropped_sharded

IDLE_S: Final = 60.0  # a checkpoint of which nothing went for so long is let go of


class CheckpointHold:
    """At most one checkpoint of a data root.

    Args:
        root: the data root.
        states: what the ledger holds of a folder's files.
    """

    def __init__(self, root: bytes, states: sharded_order.States) -> None:
        self._root, self._states = root, states
        self._path = b""
        self._sharded = False
        self._descriptor = -1
        self._used_at = 0.0  # when a file of it was last on its way

    def given(self, jobs: Iterable[SendJob], now: float) -> None:
        """These are about to be sent: hold the first one's checkpoint, if none is held."""
        for job in jobs:
            if job.due.kind != CHECKPOINT or sharded_order.is_in_making(job.due.path):
                continue
            sharded = sharded_order.split(CHECKPOINT, job.due.path)
            if self._descriptor < 0:
                self._path, self._sharded = sharded[0] if sharded else job.due.path, sharded is not None
                with suppress(OSError):  # it is about to go, or no such locks: then as without
                    self._descriptor = hold(os.path.join(self._root, self._path))
                    self._used_at = now

    def keeps_back(self, folder: bytes) -> bool:
        """Whether a sharded checkpoint is to wait for the one that is held."""
        return self._descriptor >= 0 and self._sharded and folder != self._path

    def sent(self, job: SendJob) -> None:
        """The master has this file: let go of the checkpoint whose last one it is."""
        last = self._path + sharded_order.MARK_BELOW if self._sharded else self._path
        if job.due.path == last:
            self.end()

    def look(self, jobs: Iterable[SendJob], now: float) -> None:
        """Let go of what is not on its way any more; `jobs`: what senders have."""
        if self._descriptor < 0:
            return
        below = self._path + b"/"
        if any(job.due.path == self._path or job.due.path.startswith(below) for job in jobs):
            self._used_at = now
        elif now - self._used_at > IDLE_S or not self._is_due():
            self.end()

    def _is_due(self) -> bool:
        """Whether files of it wait to be sent."""
        folder, _, name = self._path.rpartition(b"/")
        if not self._sharded:
            rows = [row for known, row in self._states(folder).items() if known == name]
        else:
            rows = [
                row
                for inner in (self._path, sharded_order.own_folder(self._path))
                for row in self._states(inner).values()
            ]
        return any(row[0] == DIRTY for row in rows)

    def end(self) -> None:
        """Hold nothing, and remove what retention dropped meanwhile."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        path = Path(os.fsdecode(os.path.join(self._root, self._path)))
        with suppress(OSError):  # retention looks again at the next save
            (remove_dropped_sharded if self._sharded else remove_dropped)(path.parent, path.name)
