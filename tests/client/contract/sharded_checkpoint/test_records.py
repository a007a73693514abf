"""Records of a sharded checkpoint: what is written is read back, what no client writes is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.sharded_folders import RUN, identity

from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.sharded_checkpoint.records import (
    Fence,
    KeptFile,
    MachinePart,
    PlanDecision,
    PlanNote,
    Receipt,
    Whole,
)

SHARD = KeptFile("__1_0.distcp", 3, "0" * 64)
METADATA = KeptFile(".metadata", 3, "1" * 64)


def receipt() -> Receipt:
    return Receipt(identity(), 1, "host", 7, (SHARD, KeptFile("rank-1.pt", 0, "2" * 64)), None, {"r": 0.5})


def test_receipts_and_whole_are_read_back() -> None:
    assert Receipt.decode(receipt().encode()) == receipt()
    whole = Whole(identity(), 7, (SHARD,), METADATA, {"nan": float("inf")})
    assert Whole.decode(whole.encode()) == whole
    assert whole.stamp.order == 7
    assert Fence.decode(Fence(RUN, 5).encode()) == Fence(RUN, 5)


def test_what_the_ranks_of_one_machine_have_is_read_back() -> None:
    beside = replace(receipt(), beside=(1,))
    assert Receipt.decode(beside.encode()) == beside
    keeps = replace(beside, keep=Retention(3, 100, ("r", "max", 2)))
    assert Receipt.decode(keeps.encode()) == keeps
    older = json.loads(receipt().encode())
    del older["beside"], older["keep"]
    assert Receipt.decode(json.dumps(older).encode()) == receipt()
    part = MachinePart(identity(), (0, 1))
    assert MachinePart.decode(part.encode()) == part
    assert beside.stamp == Whole(identity(), 7, (SHARD,), METADATA, {"r": 0.5}).stamp


def test_a_plan_note_and_the_decision_on_it_are_read_back() -> None:
    token = identity().token
    note = PlanNote(token, 0, 2, 5, "a" * 32, "host", {"k": 3})
    assert PlanNote.decode(note.encode()) == note
    for keep in (Retention(), Retention(3, 100, ("r", "max", 2))):
        decision = PlanDecision(token, "a" * 32, "", 7, {"r": float("-inf")}, keep)
        assert PlanDecision.decode(decision.encode()) == decision
    none = PlanDecision(token, "", "rank 1 has left this save out")
    assert PlanDecision.decode(none.encode()) == none
    fields = json.loads(none.encode())
    for wrong in (3, {"max_to_keep": 0}, {"keep_every": "x"}, {"keep_best": ["r", "most", 1]}):
        with pytest.raises(RemoteProtocolError):
            PlanDecision.decode(json.dumps({**fields, "keep": wrong}).encode())
    for name, other in (("layout", "../x"), ("token", "x"), ("problem", 3), ("order", "1")):
        with pytest.raises(RemoteProtocolError):
            PlanDecision.decode(json.dumps({**fields, name: other}).encode())


@pytest.mark.parametrize(
    "file",
    ["../x", "/etc/passwd", "__0_0.distcp", "__1_0.distcp/..", "rank-0.pt", "rank-01.pt", ".metadata", ""],
)
def test_a_receipt_names_files_of_its_own_rank_alone(file: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not a file of this rank"):
        Receipt.decode(replace(receipt(), files=(replace(SHARD, file=file),)).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rank", 2), ("rank", -1), ("world", 0), ("world", 1 << 40), ("token", "x"), ("epoch", "1"),
        ("files", 3), ("files", [3]), ("metrics", [1]), ("format", 2), ("step", 1 << 70), ("metadata", 1),
        ("beside", [0]), ("beside", [1, 0]), ("beside", [1, 1]), ("beside", [1, 2]), ("beside", 1),
        ("beside", ["1"]),
    ],
)  # fmt: skip
def test_what_no_client_writes_is_refused(field: str, value: object) -> None:
    fields = json.loads(receipt().encode())
    fields[field] = value
    with pytest.raises(RemoteProtocolError):
        Receipt.decode(json.dumps(fields).encode())
    for data in (b"", b"[]", b"{", b"\xff"):
        with pytest.raises(RemoteProtocolError):
            Receipt.decode(data)


def test_the_fence_keeps_out_other_runs_and_earlier_openings() -> None:
    fence = Fence(RUN, 5)
    assert not fence.keeps_out(identity(epoch=5))
    assert not fence.keeps_out(identity(epoch=6))
    assert fence.keeps_out(identity(epoch=4))
    assert fence.keeps_out(replace(identity(epoch=9), run="other"))
