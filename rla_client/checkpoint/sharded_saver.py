"""Asynchronous saver of sharded checkpoints.

The step waits for one copy of this rank's pieces. As long as these are unchanged, a rank copies only those
that it wrote in the save before; where another rank's have changed so that it would have to write more, that
save stays incomplete, with a warning, and the next one is planned anew. The thread of `sharded_writer` writes
the copy.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from typing import Any, Final

from rla_client.checkpoint.copied_save import CopiedSave
from rla_client.checkpoint.plan_board import PlanBoard
from rla_client.checkpoint.shard_capture import CopyBuffer, LocalState, StateReader, pickled
from rla_client.checkpoint.shard_plan import PieceKey
from rla_client.checkpoint.sharded_save import CheckpointPlace, ShardedSave, ended_save
from rla_client.checkpoint.sharded_writer import ShardedWriter
from rla_client.contract.sharded_checkpoint.files import folder_name, save_token
from rla_client.contract.sharded_checkpoint.records import SaveIdentity

BUFFERS: Final = 2  # copies of the state that may wait for the disk
BUSY_WAIT_S: Final = 60.0  # for a free one; then the save is skipped


class ShardedSaver:
    """Saves the sharded checkpoints of one run on one rank.

    Args:
        place: where; None: nothing is stored.
        rank: of this process.
        world: number of ranks.
        board: of the ranks' notes; None: in the folder, which all of them share.
        problem: why nothing can be saved; empty where it can.
    """

    def __init__(
        self,
        place: CheckpointPlace | None,
        rank: int,
        world: int,
        board: PlanBoard | None = None,
        *,
        problem: str = "",
    ) -> None:
        self._place, self._world, self._problem = place, world, problem
        self._attempts: dict[tuple[str, int], int] = {}
        self._reader = StateReader()
        self._free: queue.Queue[CopyBuffer] = queue.Queue()
        for _ in range(BUFFERS):
            self._free.put(CopyBuffer())
        self.writer = ShardedWriter(place, rank, world, board, self._free)
        self._calls = 0  # of save, the same on all ranks
        self._pid = os.getpid()

    def save(
        self,
        state: Mapping[str, Any],
        name: str,
        step: int,
        *,
        per_rank: object = None,
        order: int = 0,
        metrics: Mapping[str, float] | None = None,
    ) -> ShardedSave:
        """Save this rank's pieces of `state`, which are copied on return.

        Args:
            state: see `StateReader.read`.
            name: of the series.
            step: time-step, the same on all ranks.
            per_rank: this rank's own data; None: none.
            order: nanoseconds; that of rank 0 orders the saves.
            metrics: values that retention compares; those of rank 0 count.

        Raises:
            ArgumentError: the state, `per_rank` or the name cannot be saved.
        """
        self._calls += 1
        folder_name(name, step)
        attempt = self._attempts[name, step] = self._attempts.get((name, step), -1) + 1
        local = self._reader.read(state)
        own = None if per_rank is None else pickled(per_rank)
        place = self._place
        if place is None:
            return ended_save(name, step, "this run stores nothing")
        token = save_token(place.run, place.epoch, name, step, attempt)
        save = ShardedSave(name, step, place, token)
        problem = self._unable(place)
        if problem:
            self.writer.leave_out(save, problem)
            return save
        try:
            buffer = self._free.get(timeout=BUSY_WAIT_S)
        except queue.Empty:
            self.writer.leave_out(
                save, f"the disk has not taken {BUFFERS} earlier ones for {BUSY_WAIT_S:.0f} s"
            )
            return save
        try:
            objects = self._copy(local, buffer)
        except BaseException:
            self._free.put(buffer)
            raise
        identity = SaveIdentity(place.run, place.epoch, token, name, step, self._world, "")
        told = metrics or {}
        self.writer.write(
            CopiedSave(save, identity, local.plan, buffer, objects, own, order, told, self._calls)
        )
        return save

    def close(self) -> None:
        """Write the copied saves, then stop. Waits for the disk, EXIT_WAIT_S at most."""
        self.writer.close()

    def _unable(self, place: CheckpointPlace) -> str:
        """Why this process cannot write; empty where it can."""
        if self._pid != os.getpid():
            return "this is a forked process; the ranks themselves save"
        if self.writer.closing:
            return "the run has been closed"
        if not self._problem and not os.path.isdir(place.folder):
            return f"there is no folder {place.folder}"
        return self._problem

    def _copy(self, local: LocalState, buffer: CopyBuffer) -> dict[PieceKey, bytes]:
        """Copy this rank's pieces; returns the pickled objects among them."""
        known = self.writer.writes
        wanted: frozenset[PieceKey] | set[PieceKey] = {piece.identity for piece in local.plan.pieces}
        if known is not None and known[0] == local.plan.layout:
            wanted = known[1]
        buffer.fill(local.tensors, wanted)
        return {key: pickled(value) for key, value in local.objects.items() if key in wanted}
