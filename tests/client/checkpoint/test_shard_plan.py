"""Who writes what: the same on all ranks, each piece once."""

from __future__ import annotations

import pytest

from rla_client.checkpoint.shard_plan import LocalPlan, ShardPiece, SharedPlan
from rla_client.contract.errors import RemoteProtocolError


def shard(rank: int, *, world: int = 2, key: str = "w") -> ShardPiece:
    return ShardPiece(key, "shard", (rank * 2, 0), (2, 3), (world * 2, 3), "float32", 100)


def plan(*pieces: ShardPiece) -> LocalPlan:
    return LocalPlan(pieces, {piece.key: ("model", piece.key) for piece in pieces})


SAME = ShardPiece("b", "tensor", (0,), (4,), (4,), "float32", 70)
STEP = ShardPiece("step", "bytes")


def test_each_piece_is_written_once_by_the_rank_with_least_to_write() -> None:
    others = [ShardPiece(f"b{n}", "tensor", (0,), (4,), (4,), "float32", 70) for n in range(4)]
    shared = SharedPlan([plan(shard(0), STEP, *others), plan(shard(1), STEP, *others)])
    assert not shared.problem
    keys = [[piece.key for piece in pieces] for pieces in shared.pieces]
    assert keys == [["w", "b0", "b2", "step"], ["w", "b1", "b3"]]
    placed = shared.placed(0, {"step": 33})
    assert [(one.offset, one.length) for one in placed] == [(0, 100), (128, 70), (256, 70), (384, 33)]
    assert {one.file for one in placed} == {"__0_0.distcp"}


def test_what_one_rank_alone_has_is_written_by_it() -> None:
    shared = SharedPlan([plan(SAME), plan(ShardPiece("mine", "bytes"), SAME)])
    assert [[piece.key for piece in pieces] for pieces in shared.pieces] == [["b"], ["mine"]]
    assert shared.paths["mine"] == ("model", "mine")


def test_plans_are_read_back_by_their_hash() -> None:
    own = plan(shard(0), STEP)
    assert LocalPlan.decode(own.encoded, own.layout) == own
    for data in (b"", b"{}", own.encoded[:-1]):
        with pytest.raises(RemoteProtocolError):
            LocalPlan.decode(data, own.layout)
    assert SharedPlan([own, own]).layout != SharedPlan([own, plan(shard(1))]).layout


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (ShardPiece("w", "shard", (2, 0), (1, 3), (4, 3), "float32"), "the ranks hold 9 of the 12 elements of w"),
        (ShardPiece("w", "shard", (2, 0), (2, 3), (4, 3), "float16"), "w has another type or shape"),
        (ShardPiece("w", "shard", (2, 0), (2, 3), (5, 3), "float32"), "w has another type or shape"),
        (ShardPiece("w", "bytes"), "w has another type or shape"),
    ],
)
def test_pieces_that_make_no_state_are_told(second: ShardPiece, problem: str) -> None:
    assert problem in SharedPlan([plan(shard(0)), plan(second)]).problem
