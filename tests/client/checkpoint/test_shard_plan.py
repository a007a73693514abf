"""Who writes what: the same on all ranks, each piece once."""

from __future__ import annotations

import pytest

from rla_client.checkpoint.shard_plan import LocalPlan, ShardPiece, SharedPlan, placed, share_of
from rla_client.contract.errors import RemoteProtocolError


def shard(rank: int, *, world: int = 2, key: str = "w") -> ShardPiece:
    return ShardPiece(key, "shard", (rank * 2, 0), (2, 3), (world * 2, 3), "float32", 100)


def plan(*pieces: ShardPiece) -> LocalPlan:
    return LocalPlan(pieces, {piece.key: ("model", piece.key) for piece in pieces})


SAME = ShardPiece("b", "tensor", (0,), (4,), (4,), "float32", 70)
STEP = ShardPiece("step", "bytes")


def test_each_piece_is_written_once_by_the_rank_with_least_to_write() -> None:
    others = [ShardPiece(f"b{n}", "tensor", (0,), (4,), (4,), "float32", 70) for n in range(4)]
    plans = [plan(shard(0), STEP, *others), plan(shard(1), STEP, *others)]
    shared = SharedPlan(plans)
    assert not shared.problem
    keys = [[piece.key for piece in pieces] for pieces in shared.pieces]
    assert keys == [["w", "b0", "b2", "step"], ["w", "b1", "b3"]]
    for rank in range(2):  # what each rank learns of it
        assert share_of(plans[rank], rank, shared.shares) == shared.pieces[rank]
    places = placed(shared.pieces[0], 0, {"step": 33})
    assert [(one.offset, one.length) for one in places] == [(0, 100), (128, 70), (256, 70), (384, 33)]
    assert {one.file for one in places} == {"__0_0.distcp"}


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


def test_shares_of_many_ranks_are_a_few_bytes_for_each() -> None:
    plans = [plan(*(shard(rank, world=50, key=f"w{n}") for n in range(100))) for rank in range(50)]
    assert len(SharedPlan(plans).shares) < 50 * 12


@pytest.mark.parametrize(
    "shares",
    [b"", b"{}", b"[]", b"[3]", b"[[3]]", b"[[[0, 2]]]", b"[[[-1, 1]]]", b'[[["a", 1]]]', b"[[[0.5, 1]]]"],
)
def test_shares_of_other_plans_are_refused(shares: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        share_of(plan(SAME), 0, shares)


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (
            ShardPiece("w", "shard", (2, 0), (1, 3), (4, 3), "float32"),
            "the ranks hold 9 of the 12 elements of w",
        ),
        (ShardPiece("w", "shard", (2, 0), (2, 3), (4, 3), "float16"), "w has another type or shape"),
        (ShardPiece("w", "shard", (2, 0), (2, 3), (5, 3), "float32"), "w has another type or shape"),
        (ShardPiece("w", "bytes"), "w has another type or shape"),
    ],
)
def test_pieces_that_make_no_state_are_told(second: ShardPiece, problem: str) -> None:
    assert problem in SharedPlan([plan(shard(0)), plan(second)]).problem
