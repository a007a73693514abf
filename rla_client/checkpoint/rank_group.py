"""Rank group of a sharded checkpoint.

The ranks save or load together. They communicate over a gloo group of their own, whatever the training's
backend is, and only where all of them are in the same call anyway: the first one, to learn the folder of rank
0's run, and each load.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any, Final, TypeVar

from rla_client.checkpoint.torch_names import torch_module
from rla_client.contract.errors import ArgumentError

Content = TypeVar("Content")
TALK_TIMEOUT_S: Final = 600.0  # one rank may still be compiling, or loading its data
TALK_EACH_S: Final = 30.0  # far below that, while one of them works
_made: dict[int, tuple[Any, Any]] = {}  # id of the world's group → that group, ours


class RankGroup:
    """This rank among those of the job.

    Attributes:
        rank: of this process; 0 outside of a job.
        world: number of ranks.
        group: for collectives; None where there is one rank.
    """

    def __init__(self, rank: int, world: int, group: Any) -> None:  # noqa: ANN401 - torch's
        self.rank, self.world, self.group = rank, world, group

    def from_rank_zero(self, content: Content) -> Content:
        """Broadcast a value from rank 0; all ranks call it.

        Raises:
            RuntimeError: a rank is gone, or does not answer.
        """
        if self.group is None:
            return content
        box = [content]
        torch_module().distributed.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def gather(self, content: Content) -> list[Content]:
        """Gather a value of each rank, by rank; all ranks call it.

        Raises:
            RuntimeError: a rank is gone, or does not answer.
        """
        found = [content] * self.world
        if self.group is not None:
            torch_module().distributed.all_gather_object(found, content, group=self.group)
        return found

    def gather_late(self, work: Callable[[], Content]) -> list[Content]:
        """Gather the results of each rank's work, by rank, however long it takes; all ranks call it.

        The work runs in a thread while the ranks keep exchanging messages, so that no collective times out.

        Raises:
            RuntimeError: a rank is gone, or does not answer.
        """
        if self.group is None:
            return [work()] * self.world
        answer: Future[Content] = Future()
        threading.Thread(target=_work, args=(work, answer), name="rla-late", daemon=True).start()
        while True:
            wait([answer], TALK_EACH_S)
            told = self.gather([answer.result()] if answer.done() else [])
            if all(told):
                return [one[0] for one in told]


def _work(work: Callable[[], Content], answer: Future[Content]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where the answer is taken
        answer.set_exception(error)


def rank_group() -> RankGroup:
    """The ranks of this job; on the first call all of them make the group.

    Raises:
        ArgumentError: there are several, and torch.distributed is not initialised.
        RuntimeError: a rank is gone, or does not answer.
    """
    distributed = torch_module().distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        if os.environ.get("WORLD_SIZE", "1") not in {"", "1"}:
            raise ArgumentError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, and torch.distributed is not initialised: call "
                "torch.distributed.init_process_group() before a sharded checkpoint is saved or loaded"
            )
        return RankGroup(0, 1, None)
    rank, world, whole = distributed.get_rank(), distributed.get_world_size(), distributed.group.WORLD
    if world == 1:
        return RankGroup(0, 1, None)
    known = _made.get(id(whole))
    if known is None or known[0] is not whole:
        group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=TALK_TIMEOUT_S))
        known = _made[id(whole)] = whole, group
    return RankGroup(rank, world, known[1])
