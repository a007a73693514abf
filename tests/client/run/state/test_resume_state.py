"""The state of a run beside a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.spooled import stop_autostart

from rla_client import exp_manager, time_step_holder
from rla_client.contract.agent.places import Places
from rla_client.contract.layout import CHECKPOINT
from rla_client.run.item import ItemFolders
from rla_client.run.state import resume_state
from rla_client.run.state.custom_data import join_arrays
from rla_client.run.state.resume_state import arrays_of, read_resume_arrays, read_resume_state

torch = pytest.importorskip("torch", reason="needs PyTorch")


def saved_states(tmp_path: Path, at: tuple[int, ...]) -> ItemFolders:
    """A run that saved a checkpoint at each of these time-steps, with custom data that tells which."""
    config = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}
    exp_manager.configure("t", config, str(tmp_path), code_root=str(tmp_path))
    exp_manager.log_files_gen()
    for step in at:
        time_step_holder.set_time(step)
        exp_manager.save_checkpoint({"w": torch.ones(1)}, related_variable={"a": np.full(10000, step)})
    item = exp_manager._data.item
    assert item is not None
    exp_manager.close()
    return item


@pytest.mark.parametrize("limit", [20000, 1 << 20])
def test_arrays_of_a_resume_state_are_those_of_its_checkpoint(
    limit: int, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their size, and though the archive has newer ones."""
    stop_autostart(places)
    monkeypatch.setattr(resume_state, "MAX_STATE_BYTES", limit)
    item = saved_states(tmp_path, (10, 20))
    for step in (10, 20):
        state = read_resume_state(item.folder(CHECKPOINT), "checkpoint", step)
        assert state is not None
        arrays = read_resume_arrays(state, item, "checkpoint", step)
        assert set(join_arrays(state["custom_data"], arrays)["a"]) == {step}


def test_arrays_of_another_checkpoint_do_not_stand_in_for_those_that_are_gone(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_autostart(places)
    monkeypatch.setattr(resume_state, "MAX_STATE_BYTES", 20000)
    told: list[str] = []
    monkeypatch.setattr(resume_state, "warn", told.append)
    item = saved_states(tmp_path, (10, 20))
    state = read_resume_state(item.folder(CHECKPOINT), "checkpoint", 10)
    assert state is not None
    (first,), (second,) = (
        arrays_of(Path(item.folder(CHECKPOINT)), f"checkpoint_{step}") for step in (10, 20)
    )
    assert Path(item.archive_file).with_suffix(".pt").samefile(second)
    first.unlink()
    assert join_arrays(state["custom_data"], read_resume_arrays(state, item, "checkpoint", 10))["a"] is None
    assert len(told) == 1
    assert str(first) in told[0]


def test_a_time_step_that_is_saved_again_has_the_later_arrays_alone(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_autostart(places)
    monkeypatch.setattr(resume_state, "MAX_STATE_BYTES", 20000)
    item = saved_states(tmp_path, (1, 10, 1))
    assert len(arrays_of(Path(item.folder(CHECKPOINT)), "checkpoint_1")) == 1
    state = read_resume_state(item.folder(CHECKPOINT), "checkpoint", 1)
    assert state is not None
    assert set(join_arrays(state["custom_data"], read_resume_arrays(state, item, "checkpoint", 1))["a"]) == {
        1
    }
