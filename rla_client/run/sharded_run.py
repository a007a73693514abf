"""Sharded checkpoints of the open run, on all ranks of its job.

Rank 0's process has the run; the others learn at the first call where it lies, and which opening it is. From
then on its older saves are fenced off (`sharded_publish`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.rank_group import RankGroup, rank_group
from rla_client.checkpoint.sharded_loading import Found, find_whole, load_whole
from rla_client.checkpoint.sharded_saver import Place, ShardedSaver
from rla_client.contract.checkpoint.sharded_publish import raise_fence
from rla_client.contract.errors import NoCheckpointError
from rla_client.run.current_logger import warn

if TYPE_CHECKING:
    from rla_client.contract.spool.opening import Opening


class ShardedRun:
    """The sharded checkpoints of one run.

    Args:
        folder: checkpoint folder of rank 0's run; None on other ranks, and where nothing is stored.
        opening: of that run; None where it is not open.
    """

    def __init__(self, folder: Path | None, opening: Opening | None) -> None:
        self.ranks: RankGroup = rank_group()
        place = None
        if folder is not None and opening is not None and self.ranks.rank == 0:
            place = Place(folder, opening.run, opening.epoch)
            try:
                raise_fence(folder, opening.run, opening.epoch)
            except OSError as error:
                warn(f"sharded checkpoints cannot be kept in {folder}: {error.strerror or error}")
                place = None
        self.place: Place | None = self.ranks.from_rank_zero(place)
        self.saver = ShardedSaver(self.place, self.ranks.rank, self.ranks.world)

    def load(
        self, into: dict[str, Any], folder: Path | None, name: str, step: int | None, *, trust: bool
    ) -> tuple[int, Any]:
        """See `ExpManager.load_sharded`; `folder`: of rank 0's run."""
        found = Found(0, None, "")
        if self.ranks.rank == 0:
            nowhere = Found(0, None, "this run stores nothing, so there is no checkpoint")
            found = nowhere if folder is None else find_whole(folder, name, step)
        found = self.ranks.from_rank_zero(found)
        if found.path is None:
            raise NoCheckpointError(found.problem)
        run = "" if self.place is None else self.place.run
        return found.step, load_whole(into, found.path, self.ranks, run=run, trust=trust)
