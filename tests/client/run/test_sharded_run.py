"""Sharded checkpoints of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rla_client.checkpoint.sharded_loading import ChosenCheckpoint
from rla_client.contract.layout import CHECKPOINT
from rla_client.run.sharded_run import ShardedRun

torch = pytest.importorskip("torch", reason="needs PyTorch")


def test_a_fetch_that_cannot_be_asked_for_is_an_answer_for_the_others(
    open_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLA_FETCH_TIMEOUT_S", "10m")
    folder = Path(open_run.item.folder(CHECKPOINT))
    made = ShardedRun(folder, open_run.run.opening, open_run.setup)
    found = ChosenCheckpoint(7, folder / "checkpoint_7.dcp", "", 7, pruned=True)
    assert "RLA_FETCH_TIMEOUT_S must be a number" in made._bring(found, folder / "checkpoint_7.dcp")
