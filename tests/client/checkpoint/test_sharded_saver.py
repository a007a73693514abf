"""The saver of sharded checkpoints: ranks of one process, each with its own saver."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

torch = pytest.importorskip("torch")

from torch.distributed.checkpoint import load  # noqa: E402 - after the check that it is there

from rla_client.checkpoint import plan_agreement, sharded_save, sharded_writer  # noqa: E402
from rla_client.checkpoint.plan_board import StoreBoard  # noqa: E402
from rla_client.checkpoint.rank_group import RankGroup  # noqa: E402
from rla_client.checkpoint.shard_file import write_shard  # noqa: E402
from rla_client.checkpoint.sharded_loading import find_whole, load_whole  # noqa: E402
from rla_client.checkpoint.sharded_save import CheckpointPlace, ShardedSave  # noqa: E402
from rla_client.checkpoint.sharded_saver import ShardedSaver  # noqa: E402
from rla_client.contract.checkpoint.checkpoint_retention import Retention  # noqa: E402
from rla_client.contract.errors import (  # noqa: E402
    ArgumentError,
    NoCheckpointError,
    UnsafeNameError,
    UntrustedCheckpointError,
)
from rla_client.contract.layout import PARTS_FOLDER  # noqa: E402
from rla_client.contract.sharded_checkpoint import publish, retention  # noqa: E402
from rla_client.contract.sharded_checkpoint.fence import raise_fence  # noqa: E402
from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE, layout_file  # noqa: E402
from rla_client.contract.sharded_checkpoint.finish import finish_on_master  # noqa: E402
from rla_client.contract.sharded_checkpoint.folder import finals_of, parts_of, waiting_parts  # noqa: E402
from rla_client.contract.sharded_checkpoint.publish import publish_all  # noqa: E402
from rla_client.contract.sharded_checkpoint.status import sharded_status  # noqa: E402

RUN = "cd" * 16
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")
ALONE = RankGroup(0, 1, None)


class Ranks:
    """Savers of some ranks that save the same state, in the pieces that each has."""

    def __init__(self, folder: Path, world: int, epoch: int = 1) -> None:
        self.folder, self.order = folder, 0
        self.savers = [
            ShardedSaver(CheckpointPlace(folder, RUN, epoch), rank, world) for rank in range(world)
        ]

    def save(self, step: int, state: dict[str, Any], *, ranks: Any = None, **more: Any) -> list[ShardedSave]:
        chosen = self.savers if ranks is None else [self.savers[rank] for rank in ranks]
        self.order += 1
        return [saver.save(state, "checkpoint", step, order=self.order, **more) for saver in chosen]


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path, 2)
    yield made
    for saver in made.savers:
        saver.close()


def state(value: float) -> dict[str, Any]:
    return {
        "w": torch.full((5, 3), value), "b": torch.full((70,), value), "inner": {"n": value, "t": [value]},
    }  # fmt: skip


def empty() -> dict[str, Any]:
    return {"w": torch.zeros(5, 3), "b": torch.zeros(70), "inner": {"n": 0.0, "t": [0.0]}}


def holds(found: dict[str, Any], value: float) -> bool:
    tensors = [*found["w"].flatten().tolist(), *found["b"].tolist()]
    return set(tensors) | {found["inner"]["n"], found["inner"]["t"][0]} == {value}


def test_a_save_is_whole_once_all_ranks_have_written(ranks: Ranks) -> None:
    (late,) = ranks.save(1, state(1.0), ranks=[0])
    assert not late.wait("whole", 0.2)
    assert finals_of(ranks.folder) == []
    (other,) = ranks.save(1, state(1.0), ranks=[1])
    assert other.wait("local", 30)
    assert late.wait("whole", 30)
    found = empty()
    load(found, checkpoint_id=ranks.folder / "checkpoint_1.dcp", no_dist=True)  # torch's own way
    assert holds(found, 1.0)
    names = sorted(os.listdir(ranks.folder / "checkpoint_1.dcp"))
    assert names == [".metadata", ".rla", "__0_0.distcp", "__1_0.distcp"]


def test_a_save_that_gets_its_name_between_two_looks_is_whole(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, looks = threading.Event(), iter([False])

    def write(here: Path, name: str, *rest: Any) -> Any:
        assert not name.startswith("__1_") or go.wait(30)
        return write_shard(here, name, *rest)

    def came_whole(folder: Path, parts: str) -> bool:
        here = threading.current_thread() is threading.main_thread()
        if here and next(looks, None) is False:  # at the first look it is not
            go.set()
            wait_until(lambda: finals_of(folder) == ["checkpoint_1.dcp"])
            return False
        return publish.came_whole(folder, parts)

    monkeypatch.setattr(sharded_writer, "write_shard", write)
    monkeypatch.setattr(sharded_save, "came_whole", came_whole)
    zero, _ = ranks.save(1, state(1.0))
    assert zero.wait("whole", 30)


def test_what_changes_after_the_call_is_not_saved(ranks: Ranks) -> None:
    content = state(1.0)
    saves = ranks.save(1, content, per_rank={"seed": 5})
    content["w"].fill_(2.0)
    content["inner"]["t"][0] = 2.0
    assert all(save.wait("whole", 30) for save in saves)
    found = empty()
    told = find_whole(ranks.folder, "checkpoint", None, autostart=False)
    assert told.path is not None
    assert load_whole(found, told.path, ALONE, run=RUN, trust=False) is None  # another number of ranks
    assert holds(found, 1.0)


def test_a_step_that_is_saved_again_is_replaced(ranks: Ranks) -> None:
    for value in (1.0, 2.0):
        assert all(save.wait("whole", 30) for save in ranks.save(3, state(value)))
        found = empty()
        load(found, checkpoint_id=ranks.folder / "checkpoint_3.dcp", no_dist=True)
        assert holds(found, value)


def test_another_layout_is_planned_anew(ranks: Ranks) -> None:
    for step, more in enumerate([{}, {"new": torch.ones(3)}, {"new": torch.ones(4)}, {}]):
        assert all(save.wait("whole", 30) for save in ranks.save(step, {**state(step), **more}))


def test_a_state_that_grows_leaves_no_descriptions_behind(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LAYOUT_KEPT_S", 0.0)
    for step, more in enumerate([1, 2, 3, 1, 2, 3, 4]):  # those of before come again
        content = {**state(step), "new": torch.ones(more)}
        assert all(save.wait("whole", 30) for save in ranks.save(step, content)), step
    described = [name for name in os.listdir(ranks.folder / PARTS_FOLDER) if name.startswith("layout-")]
    assert len(described) == 2  # of a rank's pieces, and of who writes what
    assert [len(saver.writer._agreement._plans) for saver in ranks.savers] == [1, 0]


def test_a_description_that_cannot_be_removed_is_said_and_costs_no_save(
    ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = ranks.folder / PARTS_FOLDER / layout_file("0" * 32)
    stuck.mkdir(parents=True)  # which unlink refuses, as it does in another user's sticky folder
    os.utime(stuck, (0, 0))
    assert all(save.wait("whole", 30) for save in ranks.save(1, state(1.0)))
    assert stuck.name in caplog.text


def test_a_layout_that_changes_on_one_rank_costs_one_save_at_most(ranks: Ranks) -> None:
    def saved(step: int, own: dict[str, Any]) -> list[bool]:
        first = ranks.savers[0].save({**state(step), **own}, "checkpoint", step, order=step)
        second = ranks.savers[1].save(state(step), "checkpoint", step, order=step)
        return [first.wait("whole", 3), second.wait("whole", 3)]

    assert saved(0, {}) == [True, True]
    saved(1, {"large": torch.ones(1000)})  # rank 1 would have to write what rank 0 wrote before
    assert saved(2, {"large": torch.ones(1000)}) == [True, True]
    found = {**empty(), "large": torch.zeros(1000)}
    load(found, checkpoint_id=ranks.folder / "checkpoint_2.dcp", no_dist=True)
    assert holds(found, 2.0)


def test_retention_counts_whole_ones(ranks: Ranks) -> None:
    ranks.savers[0].writer.retention = Retention(max_to_keep=2)
    for step in range(4):
        if step == 2:
            (left,) = ranks.save(9, state(9.0), ranks=[1])
            with pytest.raises(ArgumentError):  # the other rank has nothing to save
                ranks.savers[0].save({"x": threading.Lock()}, "checkpoint", 9)
        assert all(save.wait("whole", 30) for save in ranks.save(step, state(step)))
    ranks.savers[0].close()
    assert "rank 0 has left this save out" in left.problem
    left_over = finals_of(ranks.folder)
    assert left_over == ["checkpoint_2.dcp", "checkpoint_3.dcp"]


def test_retention_holds_for_the_last_save_before_the_end(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = threading.Event()  # rank 0 has ended its part of the save before rank 1 begins to write

    def write(here: Path, name: str, *rest: Any) -> Any:
        if name.startswith("__1_"):
            assert first.wait(30)
        return write_shard(here, name, *rest)

    monkeypatch.setattr(sharded_writer, "write_shard", write)
    monkeypatch.setattr(sharded_writer, "LOOK_S", 2.0)
    ranks.savers[0].writer.retention = Retention(1)
    for step in (1, 2):
        first.clear()
        zero, one = ranks.save(step, state(float(step)))
        assert zero.wait("local", 30)
        first.set()
        assert one.wait("whole", 30)
    ranks.savers[0].close()
    assert finals_of(ranks.folder) == ["checkpoint_2.dcp"]


def test_a_rank_that_does_not_come_is_named(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_agreement, "PEERS_WAIT_S", 0.3)
    (save,) = ranks.save(1, state(1.0), ranks=[0])
    assert not save.wait("whole", 30)
    assert "ranks 1 have not come" in save.problem
    (told,) = sharded_status(ranks.folder)
    assert str(told).startswith("checkpoint_1: 0 of 2 shards; missing: rank 0, 1 (")
    assert "0 of 2 shards" in find_whole(ranks.folder, "checkpoint", None, autostart=False).problem


def test_a_save_without_room_for_its_note_leaves_nothing(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(plan_agreement, "write_atomic", write)
    saves = ranks.save(1, state(1.0))
    assert not any(save.wait("local", 30) for save in saves)
    wait_until(lambda: parts_of(ranks.folder) == [])


def test_a_later_process_fences_the_run(ranks: Ranks) -> None:
    assert all(save.wait("whole", 30) for save in ranks.save(1, state(1.0)))
    raise_fence(ranks.folder, RUN, 2)
    saves = ranks.save(2, state(2.0))
    assert not any(save.wait("whole", 30) for save in saves)
    assert "a later process continues this run" in saves[0].problem
    again = Ranks(ranks.folder, 1, epoch=2)
    assert all(save.wait("whole", 30) for save in again.save(2, state(3.0)))
    again.savers[0].close()
    assert finals_of(ranks.folder) == ["checkpoint_1.dcp", "checkpoint_2.dcp"]


def test_a_folder_that_cannot_be_written_costs_the_save_alone(tmp_path: Path) -> None:
    saver = ShardedSaver(CheckpointPlace(tmp_path / "gone", RUN, 1), 0, 1)
    assert "there is no folder" in saver.save(state(1.0), "checkpoint", 1).problem
    (tmp_path / "file").write_text("")
    (tmp_path / "file2").mkdir()
    (tmp_path / "file2" / ".rla-parts").write_text("in the way")
    saver = ShardedSaver(CheckpointPlace(tmp_path / "file2", RUN, 1), 0, 1)
    save = saver.save(state(1.0), "checkpoint", 1)
    assert not save.wait("local", 30)
    assert save.problem
    saver.close()
    assert "closed" in saver.save(state(1.0), "checkpoint", 2).problem
    assert saver.writer.left_out == 2


def test_wrong_arguments_are_said_at_once(tmp_path: Path) -> None:
    saver = ShardedSaver(CheckpointPlace(tmp_path, RUN, 1), 0, 1)
    with pytest.raises(UnsafeNameError):
        saver.save(state(1.0), "../up", 1)
    with pytest.raises(ArgumentError, match="cannot be saved"):
        saver.save({"x": threading.Lock()}, "checkpoint", 1)
    with pytest.raises(ArgumentError, match="cannot be saved"):
        saver.save({}, "checkpoint", 1, per_rank=threading.Lock())
    with pytest.raises(ArgumentError, match="'local' or 'whole'"):
        saver.save({}, "checkpoint", 9).wait("all")  # type: ignore[arg-type]
    for step in range(5):  # no buffer was lost
        assert saver.save(state(1.0), "checkpoint", step).wait("whole", 30)
    saver.close()


class Own:
    """An object that only code can rebuild."""

    def __init__(self) -> None:
        self.value = 7


def test_objects_are_loaded_by_the_run_that_wrote_them_alone(tmp_path: Path) -> None:
    saver = ShardedSaver(CheckpointPlace(tmp_path, RUN, 1), 0, 1)
    assert saver.save({"o": Own(), "w": torch.ones(2)}, "checkpoint", 1, per_rank=Own()).wait("whole", 30)
    saver.close()
    path = tmp_path / "checkpoint_1.dcp"
    with pytest.raises(UntrustedCheckpointError):
        load_whole({"o": None, "w": torch.zeros(2)}, path, ALONE, run="another", trust=False)
    with pytest.raises(UntrustedCheckpointError):
        load_whole({"w": torch.zeros(2)}, path, ALONE, run="another", trust=False)  # the rank's own file
    for run, trust in ((RUN, False), ("another", True)):
        found: dict[str, Any] = {"o": None, "w": torch.zeros(2)}
        own = load_whole(found, path, ALONE, run=run, trust=trust)
        assert (found["o"].value, own.value, found["w"].tolist()) == (7, 7, [1.0, 1.0])


def test_what_does_not_fit_or_is_not_whole_is_said(tmp_path: Path) -> None:
    saver = ShardedSaver(CheckpointPlace(tmp_path, RUN, 1), 0, 1)
    assert saver.save(state(1.0), "checkpoint", 1).wait("whole", 30)
    saver.close()
    path = tmp_path / "checkpoint_1.dcp"
    with pytest.raises(ArgumentError, match="does not fit"):
        load_whole({"other": torch.ones(2)}, path, ALONE, run=RUN, trust=False)
    with pytest.raises(ArgumentError, match="does not fit"):
        load_whole({"w": torch.ones(2)}, path, ALONE, run=RUN, trust=False)
    (path / ".rla" / "whole.json").unlink()
    with pytest.raises(NoCheckpointError, match="no whole checkpoint"):
        load_whole(empty(), path, ALONE, run=RUN, trust=False)
    assert find_whole(tmp_path, "checkpoint", None, autostart=False).path is None
    assert parts_of(tmp_path) == []


class Apart:
    """Savers of ranks on several machines, which share a store, and a master that a test plays."""

    def __init__(self, folder: Path, machines: list[tuple[int, ...]]) -> None:
        self.store = store = torch.distributed.HashStore()
        world = sum(map(len, machines))
        self.master, self.order = folder / "master", 0
        self.folders = [folder / str(number) for number in range(len(machines))]
        self.savers = []
        for here in (self.master, *self.folders):
            here.mkdir()
        for here, ranks in zip(self.folders, machines, strict=True):
            for rank in ranks:
                board = StoreBoard(store, "rla")
                self.savers.append(ShardedSaver(CheckpointPlace(here, RUN, 1, ranks), rank, world, board))

    def save(self, step: int, ranks: Iterable[int] | None = None) -> list[ShardedSave]:
        self.order += 1
        chosen = range(len(self.savers)) if ranks is None else ranks
        return [
            self.savers[rank].save(
                state(float(step)), "checkpoint", step, per_rank=rank, order=100 * rank + self.order,
                metrics={"r": float(step if rank == 0 else -1)},
            )
            for rank in chosen
        ]  # fmt: skip

    def send(self, step: int) -> list[str]:
        """As the agents do: what is marked goes to the master; what is whole there gets its name here."""
        wait_until(lambda: all(f"checkpoint_{step}." in str(waiting_parts(here)) for here in self.folders))
        for folder in self.folders:
            for parts in waiting_parts(folder):
                path = f".rla-parts/{parts}"
                shutil.copytree(folder / path, self.master / path, dirs_exist_ok=True)
        publish_all(self.master)
        for final in finals_of(self.master):
            content = (self.master / final / WHOLE_FILE).read_bytes()
            for folder in self.folders:
                finish_on_master(folder, content, "checkpoint/t/i", "m")
        return finals_of(self.master)


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Callable[..., Apart]]:
    made: list[Apart] = []

    def make(*machines: tuple[int, ...]) -> Apart:
        made.append(Apart(tmp_path, list(machines)))
        return made[-1]

    yield make
    for one in made:
        for saver in one.savers:
            saver.close()


def test_ranks_that_share_no_folder_save_together(apart: Callable[..., Apart]) -> None:
    machines = apart((0, 1), (2,))
    saves = machines.save(1)
    assert all(save.wait("local", 30) for save in saves)
    assert not any(save.wait("whole", 0.2) for save in saves)
    assert machines.send(1) == ["checkpoint_1.dcp"]
    assert all(save.wait("whole", 30) for save in saves)
    found = empty()
    load(found, checkpoint_id=machines.master / "checkpoint_1.dcp", no_dist=True)
    assert holds(found, 1.0)
    for folder, shards in zip(machines.folders, (2, 1), strict=True):
        (told,) = sharded_status(folder)
        assert str(told) == f"checkpoint_1: whole, on the master; {shards} of 3 shards are here, too"


class _Weighing:
    """A store of torch's; how many bytes were read there."""

    def __init__(self, store: Any) -> None:
        self._store, self.read = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def multi_get(self, keys: list[str]) -> Any:
        found = self._store.multi_get(keys)
        self.read += sum(map(len, found))
        return found


def test_what_a_rank_reads_does_not_grow_with_their_number(apart: Callable[..., Apart]) -> None:
    machines = apart(*((rank,) for rank in range(24)))
    weighing = _Weighing(machines.store)
    machines.savers[5].writer._agreement._board = StoreBoard(weighing, "rla")
    for step in range(2):
        before = weighing.read
        assert all(save.wait("local", 30) for save in machines.save(step))
        assert weighing.read - before < 2000, step


def test_what_makes_no_state_is_told_on_all_ranks(apart: Callable[..., Apart]) -> None:
    machines = apart((0,), (1,), (2,))
    for step in range(3):
        saves = [
            saver.save({"w": rank or torch.ones(3)}, "checkpoint", step, order=step)
            for rank, saver in enumerate(machines.savers)
        ]
        assert not any(save.wait("local", 30) for save in saves)
        assert {save.problem for save in saves} == {"w has another type or shape on some rank"}
    assert all(save.wait("local", 30) for save in machines.save(3))
    for folder in machines.folders:  # nothing of those before is left
        assert len(parts_of(folder)) == 1
    assert machines.send(3) == ["checkpoint_3.dcp"]


def test_objects_that_other_machines_wrote_need_trust(apart: Callable[..., Apart]) -> None:
    machines = apart((0,), (1,))
    for saver in machines.savers:
        saver.save({"o": Own(), "w": torch.ones(2)}, "checkpoint", 1, order=1)
    machines.send(1)
    path = machines.master / "checkpoint_1.dcp"
    found: dict[str, Any] = {"o": None, "w": torch.zeros(2)}
    with pytest.raises(UntrustedCheckpointError):
        load_whole(found, path, ALONE, run=RUN, trust=False)
    load_whole(found, path, ALONE, run=RUN, trust=True)
    assert (found["o"].value, found["w"].tolist()) == (7, [1.0, 1.0])


def test_each_machine_keeps_what_rank_0_says(apart: Callable[..., Apart]) -> None:
    machines = apart((0,), (1, 2))
    machines.savers[0].writer.retention = Retention(max_to_keep=1, keep_best=("r", "min", 1))
    for step in range(5):
        saves = machines.save(step)
        assert all(save.wait("local", 30) for save in saves)
        if step != 2:  # which the master gets late
            machines.send(step)
            assert all(save.wait("whole", 30) for save in saves)
    for saver in machines.savers:
        saver.close()
    for folder in machines.folders:
        assert finals_of(folder) == ["checkpoint_0.dcp", "checkpoint_4.dcp"]
        assert parts_of(folder) == []


def test_a_rank_of_another_machine_that_does_not_come_is_named(
    apart: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = apart((0, 1), (2,))
    monkeypatch.setattr(plan_agreement, "PEERS_WAIT_S", 0.3)
    late = machines.save(1, [0, 1])
    assert not any(save.wait("local", 30) for save in late)
    assert all("2 have not come" in save.problem for save in late)
    for folder in machines.folders:
        assert waiting_parts(folder) == []


def test_a_rank_that_has_left_a_save_out_costs_that_one_alone(apart: Callable[..., Apart]) -> None:
    machines = apart((0,), (1,))
    (left,) = machines.save(9, [1])
    with pytest.raises(ArgumentError):  # the other rank has nothing to save
        machines.savers[0].save({"x": threading.Lock()}, "checkpoint", 9)
    assert all(save.wait("local", 30) for save in machines.save(2))
    assert "rank 0 has left this save out" in left.problem
    assert machines.send(2) == ["checkpoint_2.dcp"]


def test_a_machine_that_cannot_write_stops_no_rank_of_another(apart: Callable[..., Apart]) -> None:
    machines = apart((0,), (1,))
    blocked = machines.folders[1] / PARTS_FOLDER
    blocked.write_bytes(b"")
    for step in range(3):  # more than BUFFERS: the third finds no free one if a rank waits for the other
        for save in machines.save(step):
            assert not save.wait("local", 30)
            assert save.problem, step
    blocked.unlink()
    assert all(save.wait("local", 30) for save in machines.save(3))
    assert machines.send(3) == ["checkpoint_3.dcp"]


def test_a_state_that_grows_beside_a_rank_that_cannot_write_leaves_nothing_in_memory(
    apart: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_agreement, "LEFT_OUT_LOOK_S", 0.0)
    machines = apart((0, 1), (2,))
    assert all(save.wait("local", 30) for save in machines.save(0))
    blocked = machines.folders[1] / PARTS_FOLDER
    blocked.rename(blocked.with_name("aside"))
    blocked.write_bytes(b"")
    for step in range(1, 6):
        content = {**state(1.0), "new": torch.ones(step)}
        for save in [saver.save(content, "checkpoint", step, order=step) for saver in machines.savers]:
            assert not save.wait("local", 30)
    assert max(len(saver.writer._agreement._plans) for saver in machines.savers) <= 2


def test_one_of_many_ranks_that_cannot_write_is_noticed_at_once(
    apart: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_agreement, "LEFT_OUT_LOOK_S", 0.1)
    machines = apart(tuple(range(24)), (24,))  # more ranks before it than are asked for at a look
    (machines.folders[1] / PARTS_FOLDER).write_bytes(b"")
    for save in machines.save(1)[:24]:
        assert not save.wait("local", 10)
        assert save.problem == "rank 24 has left this save out"


def test_a_save_that_fails_frees_what_retention_does_not_hold(
    apart: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = apart((0,), (1,))
    machines.savers[0].writer.retention = Retention(max_to_keep=1)
    for step in (0, 1):
        assert all(save.wait("local", 30) for save in machines.save(step))
        if step == 0:
            machines.send(step)
    monkeypatch.setattr(plan_agreement, "PEERS_WAIT_S", 0.1)
    assert not machines.save(2, [1])[0].wait("local", 30)  # nobody watches the one before any more
    machines.send(1)
    assert not machines.save(3, [1])[0].wait("local", 30)
    wait_until(lambda: finals_of(machines.folders[1]) == ["checkpoint_1.dcp"], 3)


class Behind:
    """A store of torch's, whose answers wait until they are let through; of a process that may end."""

    def __init__(self, store: Any) -> None:
        self._store, self.let, self.gone = store, threading.Event(), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def check(self, keys: list[str]) -> Any:
        assert self.let.wait(30)
        if self.gone:
            raise RuntimeError("Connection reset by peer")
        return self._store.check(keys)


def test_rank_0_ends_after_all_have_read_what_it_keeps_for_them(apart: Callable[..., Apart]) -> None:
    machines = apart((0,), (1,))
    behind = Behind(machines.store)
    machines.savers[1].writer._agreement._board = StoreBoard(behind, "rla")
    saves = machines.save(1)
    assert saves[0].wait("local", 30)
    closing = threading.Thread(target=machines.savers[0].close)
    closing.start()
    closing.join(0.5)
    assert closing.is_alive()
    behind.let.set()
    assert saves[1].wait("local", 30)
    closing.join(30)
    assert not closing.is_alive()


def test_a_store_whose_process_is_gone_is_not_waited_for(apart: Callable[..., Apart]) -> None:
    machines = apart((0,), (1,))
    behind = Behind(machines.store)
    machines.savers[1].writer._agreement._board = StoreBoard(behind, "rla")
    (save,) = machines.save(1, [1])
    behind.gone = True
    behind.let.set()
    assert not save.wait("local", 30)
    assert "the store of torch's process group cannot be asked" in save.problem


def test_a_child_by_fork_saves_nothing(tmp_path: Path) -> None:
    saver = ShardedSaver(CheckpointPlace(tmp_path, RUN, 1), 0, 1)
    child = os.fork()
    if child == 0:
        save = saver.save(state(1.0), "checkpoint", 1)
        os._exit(0 if "forked" in save.problem and not save.wait("local", 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert saver.save(state(1.0), "checkpoint", 1).wait("whole", 30)
    saver.close()
