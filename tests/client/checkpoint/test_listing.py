"""Which checkpoint is the newest."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checkpoint_lab import work

from rla_client.checkpoint.listing import (
    find_checkpoint,
    list_checkpoints,
)
from rla_client.checkpoint.saver import CheckpointSaver
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import NoCheckpointError
from rla_client.stream.outbox import Outbox

torch = pytest.importorskip("torch")


def test_both_spellings_are_found_newest_by_number(saver: CheckpointSaver, folder: Path) -> None:
    for name in ("checkpoint-9.pt", "checkpoint_10.pt", "checkpoint_9.pt", "other_99.pt", "checkpoint_x.pt"):
        torch.save({"file": name}, folder / name)
    assert [step for step, _ in list_checkpoints(folder)] == [9, 10]
    assert saver.load() == (10, {"file": "checkpoint_10.pt"})
    assert saver.load(index=9) == (9, {"file": "checkpoint_9.pt"})
    with pytest.raises(NoCheckpointError, match="9, 10"):
        find_checkpoint(folder, index=7, autostart=False)


def test_the_newest_is_the_one_that_was_saved_last(outbox: Outbox, places: Places, folder: Path) -> None:
    """Time-steps begin again with each stage of a curriculum."""
    saver = CheckpointSaver(outbox, folder)
    for stage in (1, 2):
        for step in (10, 20, 30) if stage == 1 else (10, 20):
            saver.save({"stage": stage, "step": step}, time_step=step)
            assert saver.load() == (step, {"stage": stage, "step": step}), "before its file is there"
            work(places, folder)
            assert saver.load() == (step, {"stage": stage, "step": step})
    assert [step for step, _ in list_checkpoints(folder)] == [30, 10, 20]
    assert find_checkpoint(folder, autostart=False)[0] == 20
    assert saver.load(index=30) == (30, {"stage": 1, "step": 30})
    saver.close()
