"""Handle of a requested sharded save."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import parts_name
from rla_client.contract.sharded_checkpoint.publish import came_whole

Stage = Literal["local", "whole"]
FIRST_LOOK_S, LOOK_S = 0.005, 0.1  # for notes and receipts of others


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """Target of a run's checkpoints.

    Attributes:
        folder: the run's checkpoint folder.
        run: its identity.
        epoch: of its opening.
        beside: the ranks whose saves go there, this one among them, where others have other data roots;
            empty: all ranks.
    """

    folder: Path
    run: str
    epoch: int
    beside: tuple[int, ...] = ()


class ShardedSave:
    """A requested save.

    Attributes:
        name: of the series; `step` its time-step.
        problem: why this rank's part is missing and will not come; empty without one.
    """

    def __init__(self, name: str, step: int, place: CheckpointPlace | None, token: str) -> None:
        self.name, self.step, self.problem = name, step, ""
        self._place, self._token = place, token
        self._ended = threading.Event()

    def wait(self, stage: Stage = "whole", timeout: float | None = None) -> bool:
        """Whether the save reaches a stage within `timeout` seconds (None: however long it takes).

        Args:
            stage: `local`: this rank's part is durable; `whole`: those of all ranks are, and the checkpoint
                can be loaded. Never True where nothing is stored.
            timeout: seconds.

        Raises:
            ArgumentError: another stage.
        """
        if stage not in get_args(Stage):
            raise ArgumentError(f"wait() takes 'local' or 'whole', got {stage!r}")
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._ended.wait(timeout) or self.problem or self._place is None:
            return False
        pause, parts = FIRST_LOOK_S, parts_name(self.name, self.step, self._token)
        while stage == "whole":
            gone = not os.path.isdir(self._place.folder / PARTS_FOLDER / parts)
            with suppress(OSError):
                if came_whole(self._place.folder, parts):
                    return True
                if gone:
                    return False  # abandoned, or superseded by now
            left = pause if deadline is None else min(pause, deadline - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
            pause = min(LOOK_S, 2 * pause)
        return True

    def ends(self, problem: str = "") -> None:
        """Note that this rank's part is durable, or will not come."""
        self.problem = problem
        self._ended.set()


def ended_save(name: str, step: int, problem: str) -> ShardedSave:
    """A failed save, with the reason."""
    save = ShardedSave(name, step, None, "")
    save.ends(problem)
    return save
