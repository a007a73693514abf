"""Next step of a publisher of sharded checkpoints.

Pure: the state of a save's folder, and of its final name, goes in (`SaveInTheMaking`); the step comes out
(`next_step`). `publish` carries the steps out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rla_client.contract.sharded_checkpoint.files import METADATA, STAGED_METADATA
from rla_client.contract.sharded_checkpoint.records import Fence, KeptFile, Receipt, Whole

NO_CHECKPOINT: Final = -1


class PublishStep(Enum):
    """Next step of a publisher with a save in the making."""

    WAIT = "not all parts are here"
    MARK_PART = "this machine's are, and `part.json` is written"
    ABANDON = "it belongs to an earlier opening of the run"
    PUT_METADATA = "`.metadata` takes its name"
    WRITE_WHOLE = "`whole.json` is written"
    PUT_AWAY_OLDER = "an older checkpoint makes way"
    SET_ASIDE = "something else has the final name"
    DISCARD = "a newer checkpoint has the final name"
    TAKE_NAME = "the folder takes its final name"


@dataclass(frozen=True, slots=True)
class SaveInTheMaking:
    """State of the folder of a save in the making, and of its final name.

    Attributes:
        token: of the folder's name.
        receipts: by rank, those that are readable and name this token.
        sizes: of the files that receipts name, `.metadata` and STAGED_METADATA among them; no entry where
            there is no such plain file.
        whole: of the save itself; None as long as it is not complete.
        holder: of the checkpoint that has the final name, its order; NO_CHECKPOINT: something else has the
            name; None: nothing has it.
        fence: None where there is none.
        marked: `part.json` is there.
    """

    token: str
    receipts: Mapping[int, Receipt]
    sizes: Mapping[str, int]
    whole: Whole | None = None
    holder: int | None = None
    fence: Fence | None = None
    marked: bool = False

    @property
    def beside(self) -> tuple[int, ...]:
        """The ranks of one machine, where others write into other data roots; else empty."""
        told = {receipt.beside for receipt in self.receipts.values()}
        return told.pop() if len(told) == 1 else ()

    @property
    def is_machines_part(self) -> bool:
        """Whether all files of this machine's ranks are here, and others write elsewhere."""
        return bool(self.beside) and all(self._is_here(rank) for rank in self.beside)

    @property
    def missing(self) -> list[int]:
        """Ranks whose parts are missing, or differ from their receipts; all where their number is unknown."""
        world = next((receipt.save.world for receipt in self.receipts.values()), 1)
        return [rank for rank in range(world) if not self._is_here(rank)]

    @property
    def agrees(self) -> bool:
        """Whether all receipts are of one save, planned alike."""
        return len({receipt.save for receipt in self.receipts.values()}) == 1

    def _is_here(self, rank: int) -> bool:
        receipt = self.receipts.get(rank)
        if receipt is None or (rank == 0) != (receipt.metadata is not None):
            return False
        here = all(self.sizes.get(entry.file) == entry.size for entry in receipt.files)
        if receipt.metadata is None or not here:
            return here
        return receipt.metadata.size in {self.sizes.get(METADATA), self.sizes.get(STAGED_METADATA)}


def next_step(found: SaveInTheMaking) -> PublishStep:
    """The next step for a save in the making; see the module's docstring."""
    saves = [receipt.save for receipt in found.receipts.values()]
    if found.whole is not None:
        saves = [found.whole.save]
    if found.fence is not None and any(found.fence.keeps_out(save) for save in saves):
        return PublishStep.ABANDON
    if found.whole is None:
        if not found.receipts or not found.agrees or found.missing:
            mark = found.agrees and found.is_machines_part and not found.marked
            return PublishStep.MARK_PART if mark else PublishStep.WAIT
        zero = found.receipts[0].metadata
        placed = zero is not None and found.sizes.get(METADATA) == zero.size
        return PublishStep.WRITE_WHOLE if placed else PublishStep.PUT_METADATA
    if found.holder is None:
        return PublishStep.TAKE_NAME
    if found.holder == NO_CHECKPOINT:
        return PublishStep.SET_ASIDE
    return PublishStep.PUT_AWAY_OLDER if found.holder < found.whole.order else PublishStep.DISCARD


def whole_of(receipts: Mapping[int, Receipt]) -> Whole:
    """The `whole.json` that all receipts of a save make together."""
    zero = receipts[0]
    assert zero.metadata is not None
    files = sorted(
        (entry for receipt in receipts.values() for entry in receipt.files), key=lambda entry: entry.file
    )
    metadata = KeptFile(METADATA, zero.metadata.size, zero.metadata.sha256)
    return Whole(zero.save, zero.order, tuple(files), metadata, zero.metrics)
