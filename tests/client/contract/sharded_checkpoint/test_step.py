"""The next step of a publisher: the table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.sharded_folders import RUN, identity

from rla_client.contract.sharded_checkpoint.files import METADATA, STAGED_METADATA
from rla_client.contract.sharded_checkpoint.records import Fence, KeptFile, Receipt
from rla_client.contract.sharded_checkpoint.step import (
    NO_CHECKPOINT,
    PublishStep,
    SaveInTheMaking,
    next_step,
    whole_of,
)

SAVE = identity()
SHA = "0" * 64
ZERO = Receipt(SAVE, 0, "a", 5, (KeptFile("__0_0.distcp", 3, SHA),), KeptFile(METADATA, 9, SHA))
ONE = Receipt(SAVE, 1, "b", 4, (KeptFile("__1_0.distcp", 4, SHA),))
SIZES = {"__0_0.distcp": 3, "__1_0.distcp": 4, STAGED_METADATA: 9}
BOTH = SaveInTheMaking(SAVE.token, {0: ZERO, 1: ONE}, SIZES)
PLACED = replace(BOTH, sizes={"__0_0.distcp": 3, "__1_0.distcp": 4, METADATA: 9})
WHOLE = replace(PLACED, whole=whole_of(BOTH.receipts))
LATER = Fence(RUN, SAVE.epoch + 1)
APART = {0: replace(ZERO, beside=(0,)), 1: replace(ONE, beside=(1,))}  # on two machines
THREE = replace(SAVE, world=3)
TWO_OF_THREE = {rank: replace(receipt, save=THREE, beside=(0, 1)) for rank, receipt in enumerate((ZERO, ONE))}

TABLE = {
    "nothing": (SaveInTheMaking(SAVE.token, {}, {}), PublishStep.WAIT),
    "rank 0 alone": (replace(BOTH, receipts={0: ZERO}), PublishStep.WAIT),
    "without rank 0": (replace(BOTH, receipts={1: ONE}), PublishStep.WAIT),
    "a shard is not there": (replace(BOTH, sizes={"__0_0.distcp": 3, STAGED_METADATA: 9}), PublishStep.WAIT),
    "a shard is short": (replace(BOTH, sizes={**SIZES, "__1_0.distcp": 3}), PublishStep.WAIT),
    "the metadata are short": (replace(BOTH, sizes={**SIZES, STAGED_METADATA: 8}), PublishStep.WAIT),
    "rank 0 has no metadata": (
        replace(BOTH, receipts={0: replace(ZERO, metadata=None), 1: ONE}),
        PublishStep.WAIT,
    ),
    "another layout": (
        replace(BOTH, receipts={0: ZERO, 1: replace(ONE, save=replace(SAVE, layout="M"))}),
        PublishStep.WAIT,
    ),
    "another world": (
        replace(BOTH, receipts={0: ZERO, 1: replace(ONE, save=replace(SAVE, world=3))}),
        PublishStep.WAIT,
    ),
    "all parts": (BOTH, PublishStep.PUT_METADATA),
    "all parts, something older under the final name": (replace(BOTH, holder=1), PublishStep.PUT_METADATA),
    "metadata placed": (PLACED, PublishStep.WRITE_WHOLE),
    "whole": (WHOLE, PublishStep.TAKE_NAME),
    "whole, and an older one": (replace(WHOLE, holder=4), PublishStep.PUT_AWAY_OLDER),
    "whole, and a newer one": (replace(WHOLE, holder=6), PublishStep.DISCARD),
    "whole, and something else": (replace(WHOLE, holder=NO_CHECKPOINT), PublishStep.SET_ASIDE),
    "all parts of an earlier opening": (replace(BOTH, fence=LATER), PublishStep.ABANDON),
    "whole, of an earlier opening": (replace(WHOLE, fence=LATER), PublishStep.ABANDON),
    "some parts of an earlier opening": (replace(BOTH, receipts={1: ONE}, fence=LATER), PublishStep.ABANDON),
    "the part of this machine": (replace(BOTH, receipts={0: APART[0]}), PublishStep.MARK_PART),
    "that of another": (replace(BOTH, receipts={1: APART[1]}), PublishStep.MARK_PART),
    "that of two ranks": (replace(BOTH, receipts=TWO_OF_THREE), PublishStep.MARK_PART),
    "one of two ranks": (replace(BOTH, receipts={1: TWO_OF_THREE[1]}), PublishStep.WAIT),
    "a short one": (replace(BOTH, receipts={1: APART[1]}, sizes={"__1_0.distcp": 3}), PublishStep.WAIT),
    "one that is marked": (replace(BOTH, receipts={0: APART[0]}, marked=True), PublishStep.WAIT),
    "one of an earlier opening": (
        replace(BOTH, receipts={0: APART[0]}, marked=True, fence=LATER),
        PublishStep.ABANDON,
    ),
    "all parts, of two machines": (replace(BOTH, receipts=APART, marked=True), PublishStep.PUT_METADATA),
    "of this opening": (replace(BOTH, fence=Fence(RUN, SAVE.epoch)), PublishStep.PUT_METADATA),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_next_step(case: str) -> None:
    found, expected = TABLE[case]
    assert next_step(found) is expected


def test_every_step_is_in_the_table() -> None:
    assert {step for _, step in TABLE.values()} == set(PublishStep)
