"""Removal of superseded checkpoints with what belongs to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stamped import stamped

from rla_client.contract.checkpoint import checkpoint_removal
from rla_client.contract.checkpoint.checkpoint_removal import remove_superseded
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.layout import RESUME_FOLDER, arrays_name
from rla_client.contract.spool.protocol import pack


def beside(folder: Path, name: str, order: int, arrays: bool = True) -> None:
    """What `.resume` holds of a save."""
    below = folder / RESUME_FOLDER
    below.mkdir(exist_ok=True)
    (below / f"{name}.state").write_bytes(pack({"format": 1, "order": order}))
    (below / f"{name}.marks.json").write_bytes(b"{}")
    if arrays:
        (below / arrays_name(name, order)).write_bytes(b"x")


def test_what_belongs_to_a_checkpoint_goes_with_it_and_not_before(tmp_path: Path) -> None:
    keep = Retention(max_to_keep=2)
    for order, step in enumerate((10, 20, 30, 40), 1):
        stamped(tmp_path, step, order)
        beside(tmp_path, f"checkpoint_{step}", order)
        beside(tmp_path, f"other_{step}", order)
        removed = remove_superseded(tmp_path, "checkpoint", "r", keep)
        left = {f"checkpoint_{one}" for one in range(max(10, step - 10), step + 1, 10)}
        assert removed == ([f"checkpoint_{step - 20}.pt"] if step > 20 else [])
        assert {path.stem for path in tmp_path.glob("*.pt")} == left
        below = sorted(path.name for path in (tmp_path / RESUME_FOLDER).glob("checkpoint_*"))
        assert {name.partition(".")[0] for name in below} == left
        assert len(below) == 3 * len(left)
    assert len(list((tmp_path / RESUME_FOLDER).glob("other_*"))) == 12


def test_the_state_of_a_later_save_of_that_time_step_stays(tmp_path: Path) -> None:
    """The program has saved step 10 again, the agent is still at step 20 of the stage before."""
    stamped(tmp_path, 10, 1)
    stamped(tmp_path, 20, 2)
    beside(tmp_path, "checkpoint_10", 1)
    beside(tmp_path, "checkpoint_10", 3)
    assert remove_superseded(tmp_path, "checkpoint", "r", Retention(max_to_keep=1)) == ["checkpoint_10.pt"]
    left = sorted(path.name for path in (tmp_path / RESUME_FOLDER).iterdir())
    assert left == [arrays_name("checkpoint_10", 3), "checkpoint_10.state"]


def test_a_state_that_is_exchanged_between_look_and_removal_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped(tmp_path, 10, 1)
    stamped(tmp_path, 20, 2)
    beside(tmp_path, "checkpoint_10", 1)
    look, looks = checkpoint_removal._saved_as, list[Path]()

    def exchanged(state: Path) -> int | None:
        found = look(state)
        if not looks:
            beside(tmp_path, "checkpoint_10", 3)
        looks.append(state)
        return found

    monkeypatch.setattr(checkpoint_removal, "_saved_as", exchanged)
    assert remove_superseded(tmp_path, "checkpoint", "r", Retention(max_to_keep=1)) == ["checkpoint_10.pt"]
    assert len(looks) == 2
    assert look(tmp_path / RESUME_FOLDER / "checkpoint_10.state") == 3
    assert not list((tmp_path / RESUME_FOLDER).glob(".rla-tmp*"))
