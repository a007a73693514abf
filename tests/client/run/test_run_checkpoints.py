"""Checkpoints through exp_manager, in one process with a real agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client import logger, time_step_holder
from rla_client.contract.errors import ArgumentError, MissingExtraError, NotConfiguredError
from rla_client.manager import ExpManager

torch = pytest.importorskip("torch", reason="needs PyTorch")


@pytest.mark.slow
def test_checkpoints_are_kept_per_name(manager: ExpManager) -> None:
    manager.new_saver(max_to_keep=2)
    for step in range(1, 5):
        time_step_holder.set_time(step)
        manager.save_checkpoint({"w": torch.full((2,), float(step))}, related_variable={"step": step})
        manager.save_checkpoint({"w": torch.zeros(1)}, checkpoint_name="other")
    manager.save_checkpoint({"w": torch.full((2,), 40.0)})  # again at the same time-step: the new one stays
    assert manager.flush(60)
    names = sorted(path.name for path in Path(str(manager.checkpoint_dir)).glob("*.pt"))
    assert names == ["checkpoint_3.pt", "checkpoint_4.pt", "other_3.pt", "other_4.pt"]
    step, content = manager.load_checkpoint()
    assert step == 4
    assert torch.equal(content["w"], torch.full((2,), 40.0))
    assert manager.load_checkpoint(3)[1]["w"][0] == 3.0
    assert manager.record_date is not None
    date = manager.record_date.strftime("%Y/%m/%d/%H-%M-%S-%f")
    loaded = ExpManager.load_tester(date, "t", manager.data_root or "")
    assert loaded.get_custom_data("step") == 4
    assert loaded.load_checkpoint(checkpoint_name="other")[0] == 4


@pytest.mark.slow
def test_keep_best_and_every(manager: ExpManager) -> None:
    manager.new_saver(max_to_keep=1)
    manager.keep_best("loss", "min", 1)
    manager.keep_every(4)
    for step, loss in enumerate([5.0, 1.0, 3.0, 4.0, 2.0, 6.0], start=1):
        time_step_holder.set_time(step)
        logger.record_tabular("loss", loss)
        logger.dump_tabular()
        manager.save_checkpoint({"s": step})
    assert manager.flush(60)
    names = sorted(path.name for path in Path(str(manager.checkpoint_dir)).glob("*.pt"))
    assert names == ["checkpoint_2.pt", "checkpoint_4.pt", "checkpoint_6.pt"]


def test_numbers_of_numpy_are_taken_and_wrong_rules_are_not_kept(manager: ExpManager) -> None:
    one: Any = np.int64(1)
    other = ExpManager()  # without a run, whose saver would look
    for each in (manager, other):
        each.new_saver(max_to_keep=one)
        each.keep_best("loss", "min", one)
        each.keep_every(one)
        for wrong in (0, True, 1.5, "2"):
            with pytest.raises(ArgumentError):
                each.new_saver(max_to_keep=wrong)  # type: ignore[arg-type]
            with pytest.raises(ArgumentError):
                each.keep_every(wrong)  # type: ignore[arg-type]
            with pytest.raises(ArgumentError):
                each.keep_best("loss", "min", wrong)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError):
            each.keep_best("loss", "most")  # type: ignore[arg-type]
        assert each.max_to_keep == 1
    manager.save_checkpoint({"w": 1})
    assert manager.load_checkpoint()[1] == {"w": 1}


def test_wrong_names_and_time_steps_of_checkpoints(manager: ExpManager) -> None:
    wrong: Any = 5
    with pytest.raises(ArgumentError, match="text, got int"):
        manager.save_checkpoint({"w": 1}, checkpoint_name=wrong)
    with pytest.raises(ArgumentError, match="'latest'"):
        manager.load_checkpoint("latest")
    time_step_holder.set_time(1 << 63)
    with pytest.raises(ArgumentError, match="64 bits"):
        manager.save_checkpoint({"w": 1})


def test_saving_without_a_run_says_what_to_call() -> None:
    with pytest.raises(NotConfiguredError, match="log_files_gen"):
        ExpManager().save_checkpoint({"a": 1})


def test_without_pytorch_a_saver_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rla-agent\[torch\]'"):
        ExpManager().new_saver()
