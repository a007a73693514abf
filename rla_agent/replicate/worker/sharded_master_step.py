"""Next step of a publisher of sharded checkpoints on the master. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_client.contract.sharded_checkpoint import step as sharded_step
from rla_client.contract.sharded_checkpoint.files import METADATA
from rla_client.contract.sharded_checkpoint.step import NO_CHECKPOINT


class MasterStep(Enum):
    """Next step of a publisher on the master."""

    WAIT = "not all parts are there"
    STAND_BY = "it is for the agent of rank 0's machine to make it whole"
    REMOVE = "it is of an earlier opening of the run, or a later checkpoint has its name"
    BLOCKED = "something else has its name"
    LEAVE_OLDER = "an older checkpoint has its name, and makes way by the machine of rank 0"
    PUT_AWAY_OLDER = "an older checkpoint makes way"
    TAKE_NAME = "the folder takes its final name"
    GIVE_BACK = "something is not there that was: the folder gets its former name"
    PUT_METADATA = "`.metadata` takes its name"
    WRITE_WHOLE = "`whole.json` is written"
    DONE = "it is whole"


@dataclass(frozen=True, slots=True)
class OnMaster:
    """State of a save on the master.

    Attributes:
        found: as in one folder. `receipts`: those of this machine alone, as long as not all are there;
            `whole`: of the save itself, under its final name; `holder`: of another one, whole or older.
        ranks: whose receipts are there.
        placed: it has its final name.
        puts_away: this machine is rank 0's.
        stands_by: another machine has to publish.
        content: of its `whole.json`.
        files: all files that are there, by their paths below the folder.
    """

    found: sharded_step.SaveInTheMaking
    ranks: frozenset[int] = frozenset()
    placed: bool = False
    puts_away: bool = False
    stands_by: bool = False
    content: bytes = b""
    files: Mapping[str, RemoteStat] = field(default_factory=dict)


def next_step(there: OnMaster) -> MasterStep:  # noqa: PLR0911 - one return per case
    """The next step; `sharded_master` describes them."""
    found = there.found
    if found.whole is not None:
        return MasterStep.DONE
    if there.stands_by:
        return MasterStep.STAND_BY
    receipts = found.receipts.values()
    order = max((receipt.order for receipt in receipts), default=None)
    late = order is not None and found.holder is not None and found.holder > order
    if late or (found.fence is not None and any(found.fence.keeps_out(one.save) for one in receipts)):
        return MasterStep.REMOVE
    if not receipts or not found.agrees or found.missing:
        return MasterStep.GIVE_BACK if there.placed else MasterStep.WAIT
    if found.holder == NO_CHECKPOINT:
        return MasterStep.BLOCKED
    if found.holder is not None:
        return MasterStep.PUT_AWAY_OLDER if there.puts_away else MasterStep.LEAVE_OLDER
    if not there.placed:
        return MasterStep.TAKE_NAME
    zero = found.receipts[0].metadata
    named = zero is not None and found.sizes.get(METADATA) == zero.size
    return MasterStep.WRITE_WHOLE if named else MasterStep.PUT_METADATA
