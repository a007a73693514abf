"""The board of a sharded save: files that all ranks see, or a store of torch's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rla_client.checkpoint.plan_board import CHUNK_BYTES, TOGETHER, FolderBoard, PlanBoard, StoreBoard
from rla_client.checkpoint.shard_plan import LocalPlan, ShardPiece
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import OWN_FOLDER, layout_file, parts_name, plan_note_name
from rla_client.contract.sharded_checkpoint.records import PlanDecision, PlanNote

TOKENS = ["0" * 16, "1" * 16, "2" * 16]
PLAN = LocalPlan((ShardPiece("w", "tensor", (0,), (2,), (2,), "float32", 8),), {"w": ("w",)})


def note(number: int, rank: int, lengths: dict[str, int] | None = None) -> PlanNote:
    return PlanNote(TOKENS[number], rank, 2, number, PLAN.layout, "host", lengths or {})


def parts(number: int) -> str:
    return parts_name("checkpoint", number, TOKENS[number])


@pytest.fixture(params=["folder", "store"])
def boards(request: pytest.FixtureRequest, tmp_path: Path) -> list[PlanBoard]:
    """Of two ranks."""
    if request.param == "folder":
        (tmp_path / PARTS_FOLDER).mkdir()
        return [_Filed(tmp_path), _Filed(tmp_path)]
    store = store_of_torch()
    return [StoreBoard(store, "rla/run/1") for _ in range(2)]


class _Filed(FolderBoard):
    """With the file that the saver leaves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._place = folder

    def tell(self, parts: str, note: PlanNote) -> None:
        own = self._place / PARTS_FOLDER / parts / OWN_FOLDER
        own.mkdir(parents=True, exist_ok=True)
        (own.parent / plan_note_name(note.rank)).write_bytes(note.encode())
        super().tell(parts, note)


def store_of_torch() -> Any:
    distributed = pytest.importorskip("torch.distributed", reason="needs torch")
    return distributed.HashStore()


def test_each_rank_sees_what_the_others_told(boards: list[PlanBoard]) -> None:
    own, other = boards
    with pytest.raises(FileNotFoundError):
        other.note(parts(1), 0)
    with pytest.raises(FileNotFoundError):
        other.description(0, PLAN.layout)
    assert list(other.notes_of([0, 1])) == []
    for number in (1, 2):
        own.describe(0, PLAN)
        own.tell(parts(number), note(number, 0))
    assert LocalPlan.decode(other.description(0, PLAN.layout), PLAN.layout) == PLAN
    assert PlanNote.decode(other.note(parts(1), 0)) == note(1, 0)
    assert note(2, 0) in [PlanNote.decode(data) for data in other.notes_of([0, 1])]


def test_the_others_see_what_rank_0_decides(boards: list[PlanBoard]) -> None:
    own, other = boards
    for number, layout in enumerate(["a" * 32, "b" * 32, "a" * 32, "", "a" * 32]):
        token = f"{number:016x}"
        folder = parts_name("checkpoint", number, token)
        own.describe(0, PLAN)
        own.tell(folder, PlanNote(token, 0, 2, number, PLAN.layout, "host", {}))
        with pytest.raises(FileNotFoundError):
            other.decision(folder)
        decision = PlanDecision(token, layout, "" if layout else "rank 1 is gone", 7, {"r": 1.0})
        if layout:
            own.share_out(layout, layout.encode())
        own.decide(folder, decision, number)
        assert PlanDecision.decode(other.decision(folder)) == decision
        if layout:
            assert other.shares(layout) == layout.encode()
            own.all_told(number)


def test_notes_are_read_up_to_one_that_is_not_there(boards: list[PlanBoard]) -> None:
    own, other = boards
    assert other.notes(parts(1), [0, 1]) == []
    own.describe(0, PLAN)
    own.tell(parts(1), note(1, 0))
    assert [PlanNote.decode(data) for data in other.notes(parts(1), [0])] == [note(1, 0)]
    assert other.notes(parts(1), [1, 0]) == []
    assert [PlanNote.decode(data) for data in other.notes(parts(1), [0, 1])] == [note(1, 0)]
    other.describe(1, PLAN)
    other.tell(parts(1), note(1, 1))
    found = [PlanNote.decode(data) for data in own.notes(parts(1), [1, 0])]
    assert found == [note(1, 1), note(1, 0)]


def test_a_description_that_was_removed_is_left_again(tmp_path: Path) -> None:
    """By a rank that had looked at an earlier file of that name."""
    (tmp_path / PARTS_FOLDER).mkdir()
    board = FolderBoard(tmp_path)
    board.describe(0, PLAN)
    (tmp_path / PARTS_FOLDER / layout_file(PLAN.layout)).unlink()
    board.describe(0, PLAN)
    assert board.description(0, PLAN.layout) == PLAN.encoded


class _Counting:
    """A store of torch's that counts what is asked of it."""

    def __init__(self) -> None:
        self.requests = 0
        self._store = store_of_torch()

    def __getattr__(self, name: str) -> Any:
        self.requests += 1
        return getattr(self._store, name)


def test_the_notes_of_many_ranks_are_a_few_requests() -> None:
    """Else the requests of a save would be the square of the ranks."""
    store = _Counting()
    for rank in range(TOGETHER):
        told = StoreBoard(store, "rla/run/1")
        told.describe(rank, PLAN)
        told.tell(parts(1), note(1, rank))
    store.requests = 0
    assert len(StoreBoard(store, "rla/run/1").notes(parts(1), range(TOGETHER))) == TOGETHER
    assert store.requests <= 4


@pytest.mark.parametrize("missing", [0, 1, 2, 40, TOGETHER - 1, TOGETHER, TOGETHER + 5])
def test_up_to_one_of_many_that_is_not_there_the_notes_are_a_few_requests(missing: int) -> None:
    store, world = _Counting(), TOGETHER + 10
    for rank in {*range(world)} - {missing}:
        told = StoreBoard(store, "rla/run/1")
        told.describe(rank, PLAN)
        told.tell(parts(1), note(1, rank))
    store.requests = 0
    found = StoreBoard(store, "rla/run/1").notes(parts(1), range(world))
    assert [PlanNote.decode(data).rank for data in found] == [*range(missing)]
    assert store.requests <= (2 if missing == 0 else 16)


def test_keys_go_once_no_rank_needs_them() -> None:
    store = store_of_torch()
    own = StoreBoard(store, "rla/run/1")
    plans = [PLAN, LocalPlan(PLAN.pieces, {"w": ("a", "b")})]
    most = 0
    for number in range(50):
        own.describe(0, plans[number % 2])
        own.tell(f"c_{number}.{number:016x}", note(0, 0, {"k": number}))
        own.all_told(number + 1)
        most = max(most, store.num_keys())
    assert most < 20
    own.describe(0, plans[0])
    assert own.description(0, plans[0].layout) == plans[0].encoded


def test_what_is_larger_than_a_value_of_the_store_may_be_arrives_whole() -> None:
    board = StoreBoard(store_of_torch(), "rla/run/1")
    long = note(1, 0, {f"key{number:0100}": number for number in range(3 * CHUNK_BYTES // 100)})
    board.describe(0, PLAN)
    board.tell(parts(1), long)
    assert PlanNote.decode(board.note(parts(1), 0)) == long


def test_a_store_that_is_gone_is_an_error_of_the_disks_kind() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Connection reset by peer\nmore")

    gone = SimpleNamespace(set=fail, check=fail)
    board = StoreBoard(gone, "rla/run/1")
    with pytest.raises(OSError, match="takes nothing: Connection reset by peer"):
        board.describe(0, PLAN)
    with pytest.raises(OSError, match="cannot be asked"):
        board.note(parts(1), 0)
    assert list(board.notes_of([0])) == []
