"""torch.distributed.checkpoint's own calls with our writer and reader."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.checkpoint import load, save  # noqa: E402 - after the check that it is there
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from rla_client import exp_manager, time_step_holder  # noqa: E402
from rla_client.contract.errors import NoCheckpointError  # noqa: E402
from rla_client.contract.sharded_checkpoint.fence import raise_fence  # noqa: E402
from rla_client.contract.sharded_checkpoint.folder import finals_of, parts_of  # noqa: E402
from rla_client.integrations.dcp import RLAStorageReader, RLAStorageWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


@pytest.fixture
def folder(tmp_path: Path, agent: Any) -> Any:
    exp_manager.configure("dcp", {"LOG_USED": ["csv"]}, tmp_path / "data")
    exp_manager.log_files_gen()
    yield Path(str(exp_manager.checkpoint_dir))
    exp_manager.close()


def test_saved_and_loaded(folder: Path) -> None:
    writer = RLAStorageWriter()
    for step in (3, 4):
        time_step_holder.set_time(step)
        save({"w": torch.full((3,), float(step)), "n": step}, storage_writer=writer, no_dist=True)
    assert sorted(os.listdir(folder)) == [".rla-parts", "checkpoint_3.dcp", "checkpoint_4.dcp"]
    assert os.listdir(folder / ".rla-parts") == ["publish.lock"]
    for step, reader in ((4, RLAStorageReader()), (3, RLAStorageReader(step=3, folder=folder))):
        into: dict[str, Any] = {"w": torch.zeros(3), "n": 0}
        load(into, storage_reader=reader, no_dist=True)
        assert (into["w"].tolist(), into["n"], reader.step) == ([float(step)] * 3, step, step)
    step, _ = exp_manager.load_sharded(into)
    assert (step, into["n"]) == (4, 4)


def test_the_number_of_a_checkpoint_id_is_the_time_step(folder: Path) -> None:
    save(
        {"w": torch.ones(1)}, checkpoint_id="any/step-17", storage_writer=RLAStorageWriter("m"), no_dist=True
    )
    assert (folder / "m_17.dcp" / ".rla" / "whole.json").is_file()


IN_ANOTHER_PROCESS = """
import pickle, sys, torch
from torch.distributed.checkpoint import save
for written in pickle.load(sys.stdin.buffer):
    save({"w": torch.ones(1)}, storage_writer=pickle.loads(written), no_dist=True)
"""


def test_a_process_without_the_run_saves(folder: Path) -> None:
    """As torch does where `async_save` saves in a process of its own."""
    exp_manager.new_saver(max_to_keep=2)
    writers = []
    for step in range(3):
        time_step_holder.set_time(step)
        writers.append(pickle.dumps(RLAStorageWriter()))
    time_step_holder.set_time(99)
    command = [sys.executable, "-W", "ignore", "-c", IN_ANOTHER_PROCESS]
    done = subprocess.run(command, input=pickle.dumps(writers), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert finals_of(folder) == ["checkpoint_1.dcp", "checkpoint_2.dcp"]


def test_a_save_that_a_later_process_abandoned_is_none(folder: Path) -> None:
    run = exp_manager.run
    assert run is not None
    assert run.opening is not None
    raise_fence(folder, run.opening.run, run.opening.epoch + 1)
    with pytest.raises(CheckpointException, match="did not become whole"):
        save({"w": torch.ones(1)}, storage_writer=RLAStorageWriter(step=1), no_dist=True)
    with pytest.raises(NoCheckpointError, match="no whole sharded checkpoint"):
        RLAStorageReader()


def test_a_rank_with_a_root_of_its_own_says_at_once_what_to_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its root has the same path as rank 0's, and the run's folder, but not the save that rank 0 began."""
    made = RLAStorageWriter.prepare_global_plan

    def on_another_machine(self: RLAStorageWriter, plans: list[Any]) -> list[Any]:
        found = made(self, plans)
        for name in parts_of(folder):
            shutil.rmtree(folder / ".rla-parts" / name)
        return found

    monkeypatch.setattr(RLAStorageWriter, "prepare_global_plan", on_another_machine)
    with pytest.raises(CheckpointException, match=r"use exp_manager\.save_sharded\(state\)"):
        save({"w": torch.ones(1)}, storage_writer=RLAStorageWriter(step=1), no_dist=True)
    assert finals_of(folder) == []


class Broken:
    """An object that cannot be written."""

    def __reduce__(self) -> Any:
        raise OSError(28, "No space left on device")


def test_older_checkpoints_and_saves_that_failed_go(folder: Path) -> None:
    exp_manager.new_saver(max_to_keep=1)
    for step in (1, 2):
        with pytest.raises(CheckpointException, match="No space left"):
            save({"w": torch.ones(9), "o": Broken()}, storage_writer=RLAStorageWriter(step=9), no_dist=True)
        (left,) = parts_of(folder)
        assert list((folder / ".rla-parts" / left).glob("__*")) == []
        save({"w": torch.ones(9)}, storage_writer=RLAStorageWriter(step=step), no_dist=True)
        assert parts_of(folder) == []
        assert finals_of(folder) == [f"checkpoint_{step}.dcp"]


class Own:
    """An object that only code can rebuild."""


def test_objects_of_others_are_refused(folder: Path, tmp_path: Path) -> None:
    save({"o": Own()}, storage_writer=RLAStorageWriter(step=1), no_dist=True)
    into: dict[str, Any] = {"o": None}
    load(into, storage_reader=RLAStorageReader(), no_dist=True)
    assert type(into["o"]).__name__ == "Own"
    exp_manager.close()
    exp_manager.configure("dcp", {"LOG_USED": ["csv"]}, tmp_path / "other")
    exp_manager.log_files_gen()
    with pytest.raises(CheckpointException, match="more than tensors"):
        load(into, storage_reader=RLAStorageReader(folder=folder), no_dist=True)
    load(into, storage_reader=RLAStorageReader(folder=folder, trust=True), no_dist=True)
