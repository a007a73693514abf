"""Random histories of sharded saves, with publishers that are killed at any of their steps.

After each of them: each checkpoint that is complete holds files of one save only, and one that was complete
before is still so, or a newer one of its step is.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.killed_child import killed_at
from support.sharded_folders import RUN, check_whole, identity, parts_path, write_part

from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.files import LOCK_FILE
from rla_client.contract.sharded_checkpoint.folder import finals_of, parts_of, read_whole
from rla_client.contract.sharded_checkpoint.publish import publish_all

HISTORIES = int(os.environ.get("RLA_TEST_HISTORIES", "8"))
STEPS = 40


def killed_publisher(folder: Path, calls: int, fence: int | None) -> bool:
    """A child that publishes, or raises the fence, is killed at that call; False where it came to its end."""

    def work() -> None:
        if fence is None:
            publish_all(folder)
        else:
            raise_fence(folder, RUN, fence)

    return killed_at(calls, work)


def complete(folder: Path) -> dict[int, int]:
    """Time-step → highest order of its complete checkpoints, each of which is checked."""
    found: dict[int, int] = {}
    for path in [
        *(folder / name for name in finals_of(folder)),
        *(folder / PARTS_FOLDER / name for name in parts_of(folder)),
    ]:
        whole = read_whole(path)
        if whole is not None:
            found[whole.save.step] = max(found.get(whole.save.step, 0), check_whole(path))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_histories(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    epoch, order, kills = 1, 0, 0
    before: dict[int, int] = {}
    attempts: dict[int, int] = {}
    for _ in range(STEPS):
        what = chance.choice(["save", "save", "save", "publish", "kill", "kill", "kill", "resume"])
        if what == "save":
            step, order = chance.randrange(3), order + 1
            attempts[step] = attempts.get(step, -1) + 1
            save = identity(step, epoch=epoch, attempt=attempts[step], world=3)
            for rank in chance.sample(range(3), chance.choice([3, 3, 3, 2])):
                write_part(tmp_path, save, rank, order)
        elif what == "publish":
            publish_all(tmp_path)
            assert not any(read_whole(tmp_path / PARTS_FOLDER / name) for name in parts_of(tmp_path))
        else:
            raised = epoch + 1 if what == "resume" else None
            kills += killed_publisher(tmp_path, chance.randrange(120), raised)
            epoch = raised or epoch
        now = complete(tmp_path)
        if what != "resume":  # an opening that is raised half-way may abandon what nobody had published
            assert all(now.get(step, -1) >= former for step, former in before.items()), (before, now)
        before = now
    raise_fence(tmp_path, RUN, epoch)
    for rank in range(3):
        write_part(tmp_path, identity(9, epoch=epoch, world=3), rank, order + 1)
    publish_all(tmp_path)
    assert complete(tmp_path)[9] == order + 1
    assert kills


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, pytest.param(True, marks=pytest.mark.further)])
def test_a_kill_at_each_call(tmp_path: Path, older: bool) -> None:
    calls, killed = 0, True
    while killed:
        folder = tmp_path / str(calls)
        folder.mkdir()
        former, later = identity(attempt=0), identity(attempt=1)
        if older:
            for rank in range(2):
                write_part(folder, former, rank, 1)
            publish_all(folder)
        for rank in range(2):
            write_part(folder, later, rank, 2)
        killed = killed_publisher(folder, calls, None)
        found = complete(folder)
        assert found in ([{1: 1}, {1: 2}] if older else [{}, {1: 2}])
        publish_all(folder)
        assert complete(folder) == {1: 2}
        assert finals_of(folder) == ["checkpoint_1.dcp"]
        assert not parts_path(folder, later).exists()
        assert killed or os.listdir(folder / PARTS_FOLDER) == [LOCK_FILE]
        calls += 1
    assert calls > 20
