"""Copied save of one rank on its way to the disk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rla_client.checkpoint.shard_capture import CopyBuffer
from rla_client.checkpoint.shard_plan import LocalPlan, PieceKey
from rla_client.checkpoint.sharded_save import ShardedSave
from rla_client.contract.sharded_checkpoint.files import parts_name
from rla_client.contract.sharded_checkpoint.records import SaveIdentity


class SaveGivenUpError(Exception):
    """A save of this rank cannot be finished; says why."""


@dataclass(frozen=True)
class CopiedSave:
    """A save whose pieces are copied, and that is to be written.

    Attributes:
        save: the user's handle.
        identity: without its layout, which the plan gives.
        plan: what this rank could write.
        buffer: the copied tensors.
        objects: the pickled objects.
        own: pickled state of this rank alone; None without any.
        order: nanoseconds; that of rank 0 orders the saves.
        metrics: what retention compares; those of rank 0 count.
        number: of the call, the same on all ranks.
        asked: when it was copied; monotonic seconds.
    """

    save: ShardedSave
    identity: SaveIdentity
    plan: LocalPlan
    buffer: CopyBuffer
    objects: Mapping[PieceKey, bytes]
    own: bytes | None
    order: int
    metrics: Mapping[str, float]
    number: int
    asked: float = field(default_factory=time.monotonic)

    @property
    def parts(self) -> str:
        """Name of the folder of its parts."""
        return parts_name(self.save.name, self.save.step, self.identity.token)
