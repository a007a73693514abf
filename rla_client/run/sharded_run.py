"""Sharded checkpoints of the open run, on all ranks of its job.

Rank 0's process has the run; the others learn the folder of their saves at the first call (`sharded_place`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.plan_board import StoreBoard
from rla_client.checkpoint.rank_group import RankGroup, rank_group
from rla_client.checkpoint.sharded_loading import (
    ChosenCheckpoint,
    bring_here,
    bring_save,
    choose_whole,
    load_whole,
)
from rla_client.checkpoint.sharded_saver import ShardedSaver
from rla_client.contract.errors import FetchError, NoCheckpointError, RlaError
from rla_client.run import torch_store
from rla_client.run.sharded_place import PlaceMeeting, listed

if TYPE_CHECKING:
    from rla_client.contract.spool.opening import Opening
    from rla_client.run.configure import RunSetup


class ShardedRun:
    """The sharded checkpoints of one run; all ranks make it together.

    Args:
        folder: checkpoint folder of rank 0's run; None on other ranks, and where nothing is stored.
        opening: of that run; None where it is not open.
        setup: of a rank above 0 that has joined the run; None of one that has not.
    """

    def __init__(self, folder: Path | None, opening: Opening | None, setup: RunSetup | None = None) -> None:
        self.ranks: RankGroup = rank_group()
        self._setup = setup
        self._autostart = setup is None or setup.starts_agent
        meeting = PlaceMeeting(self.ranks, folder, opening, setup)
        self.problem = meeting.problem  # why nothing can be saved or loaded, the same on all ranks
        self.place = meeting.place
        board = None
        if self.place is not None and self.place.beside:
            prefix = f"rla/sharded/{self.place.run}/{self.place.epoch}"
            board = StoreBoard(torch_store.default_store(), prefix)
        self.saver = ShardedSaver(self.place, self.ranks.rank, self.ranks.world, board, problem=self.problem)

    @property
    def leads(self) -> bool:
        """Whether this rank does the work that is done once for the folder of its saves."""
        return self.ranks.rank == min(() if self.place is None else self.place.beside, default=0)

    def load(
        self, into: dict[str, Any], folder: Path | None, name: str, step: int | None, *, trust: bool
    ) -> tuple[int, Any]:
        """See `ExpManager.load_sharded`; `folder`: of rank 0's run."""
        found, path = self.find(folder, name, step)
        run = "" if self.place is None else self.place.run
        return found.step, load_whole(into, path, self.ranks, run=run, trust=trust)

    def find(self, folder: Path | None, name: str, step: int | None) -> tuple[ChosenCheckpoint, Path]:
        """A checkpoint, complete on return, and its folder here; all ranks call it.

        Args:
            folder: of rank 0's run.
            name: see `ExpManager.load_sharded`.
            step: likewise.

        Raises:
            NoCheckpointError: there is none; on all ranks, as the other one.
            FetchError: a machine could not get it from the master.
        """
        found = ChosenCheckpoint(0, None, self.problem)
        if self.ranks.rank == 0 and not self.problem:
            nowhere = ChosenCheckpoint(
                0, None, "rank 0 has no open run that is stored, so there is no checkpoint"
            )
            found = nowhere if folder is None else choose_whole(folder, name, step)
        found = self.ranks.from_rank_zero(found)
        if found.path is None:
            raise NoCheckpointError(found.problem)
        path = found.path
        if self.place is not None and self.ranks.rank:
            path = self.place.folder / path.name
        problem = listed(self.ranks.gather_late(lambda: self._bring(found, path) if self.leads else ""))
        if problem:  # on all ranks; not NoCheckpointError, after which programs begin anew
            raise FetchError(problem)
        return found, path

    def _bring(self, found: ChosenCheckpoint, path: Path) -> str:
        """Complete a checkpoint in the folder of this rank's saves; returns the failure."""
        try:
            if self.place is None or not self.place.beside:
                problem = bring_here(found, autostart=self._autostart)
            else:
                root, config = "", None
                if self._setup is not None:
                    _table, read, root = self._setup.configured()
                    config = read.path
                problem = bring_save(path, found, root, config, autostart=self._autostart)
        except (RlaError, OSError) as error:  # the others wait for an answer
            problem = str(error)
        return problem and f"{os.uname().nodename}: {problem}"
