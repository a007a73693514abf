"""A save of a rank that is killed, or whose disk is full, at each of its file operations.

What was whole before stays so, and after the next save nothing of the failed one takes space.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.killed_child import SEEN, killed_at

torch = pytest.importorskip("torch")

from rla_client.checkpoint.rank_group import RankGroup  # noqa: E402 - after the check that it is there
from rla_client.checkpoint.sharded_loading import find_whole, load_whole  # noqa: E402
from rla_client.checkpoint.sharded_save import CheckpointPlace  # noqa: E402
from rla_client.checkpoint.sharded_saver import ShardedSaver  # noqa: E402
from rla_client.contract.checkpoint.checkpoint_retention import Retention  # noqa: E402
from rla_client.contract.sharded_checkpoint.fence import raise_fence  # noqa: E402
from rla_client.contract.sharded_checkpoint.folder import finals_of, parts_of  # noqa: E402

RUN = "cd" * 16
EVERY = int(os.environ.get("RLA_TEST_EACH_CALL", "8"))  # 1: at each one
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def state(value: int) -> dict[str, Any]:
    return {"w": torch.full((500,), float(value)), "n": value}


def make_saver(folder: Path, epoch: int) -> ShardedSaver:
    saver = ShardedSaver(CheckpointPlace(folder, RUN, epoch), 0, 1)
    saver.writer.retention = Retention(max_to_keep=1)
    return saver


def save_with(saver: ShardedSaver, step: int) -> str:
    """Why it did not become whole; empty where it did."""
    done = saver.save(state(step), "checkpoint", step, per_rank={"rank": 0}, order=step)
    return "" if done.wait("whole", 2) else done.problem or "not whole"


def save(folder: Path, epoch: int, step: int) -> str:
    saver = make_saver(folder, epoch)
    try:
        return save_with(saver, step)
    finally:
        saver.close()


def data_in_the_making(folder: Path) -> list[Path]:
    return [path for path in (folder / ".rla-parts").rglob("*") if path.suffix in {".distcp", ".pt"}]


def loaded(folder: Path) -> int:
    """The newest whole one, of which all is of one save."""
    found = find_whole(folder, "checkpoint", None, autostart=False)
    assert found.path is not None, found.problem
    into = state(-1)
    assert load_whole(into, found.path, RankGroup(0, 1, None), run=RUN, trust=False) == {"rank": 0}
    assert {*into["w"].tolist(), float(into["n"])} == {float(found.step)}
    return found.step


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # others do not outlive the fork
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_kill_at_each_call(tmp_path: Path) -> None:
    assert save(tmp_path, 1, 1) == ""
    calls, step = 0, 1
    while killed_at(calls, partial(save, tmp_path, 2 * step, step + 1)):
        assert loaded(tmp_path) in {step, step + 1}
        raise_fence(tmp_path, RUN, 2 * step + 1)
        step += 2
        assert save(tmp_path, 2 * step - 3, step) == ""  # of the opening that goes on
        assert loaded(tmp_path) == step
        assert finals_of(tmp_path) == [f"checkpoint_{step}.dcp"]
        assert parts_of(tmp_path) == []
        assert data_in_the_making(tmp_path) == []
        calls += EVERY
    assert calls > 16


@pytest.mark.slow
def test_a_full_disk_at_each_call(tmp_path: Path) -> None:
    """In children, for an audit hook cannot be taken off."""
    calls, failed = 0, 0
    while True:
        folder = tmp_path / str(calls)
        folder.mkdir()

        def work(folder: Path = folder, left: int = calls) -> None:
            saver = make_saver(folder, 1)
            assert save_with(saver, 1) == ""
            full = True

            def count(event: str, _arguments: object) -> None:
                nonlocal left
                if full and event in SEEN and event not in {"os.remove", "os.listdir"}:
                    left -= 1
                    if left < 0:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            sys.addaudithook(count)
            problem = save_with(saver, 2)
            full = False
            if left >= 0:
                (folder / "came through").touch()
            assert problem in {"", "not whole"} or "No space left" in problem, problem
            assert problem in {"", "not whole"} or data_in_the_making(folder) == []
            assert loaded(folder) in {1, 2}
            assert save_with(saver, 3) == ""
            saver.close()

        assert not killed_at(10**9, work)
        assert loaded(folder) == 3
        assert finals_of(folder) == ["checkpoint_3.dcp"]
        assert data_in_the_making(folder) == []
        if (folder / "came through").exists():
            break
        failed += 1
        calls += EVERY
    assert failed > 3
