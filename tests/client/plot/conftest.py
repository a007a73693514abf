"""A small database for plots: two settings with three seeds each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.written_runs import own_state  # noqa: F401 - a fixture


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """lr=0.1: return = step + seed; lr=0.01: return = 2 * step + seed; 11 rows; loss = 1 / (step + 1)."""
    root = tmp_path / "db"
    for number, (lr, seed) in enumerate((lr, seed) for lr in (0.1, 0.01) for seed in (0, 1, 2)):
        index = f"2026/11/2{1 if lr == 0.1 else 2}/09-30-{number:02}-123456_noip_&lr={lr}&seed={seed}"
        for kind in ("log", "hyperparameter", "results"):
            (root / kind / "task" / index).mkdir(parents=True)
        slope = 1 if lr == 0.1 else 2
        rows = [f"{1 / (step + 1)!r},{slope * step + seed},{step * 10}" for step in range(11)]
        (root / "log" / "task" / index / "progress.csv").write_text(
            "\n".join(["loss,return,time-step", *rows]) + "\n"
        )
        params = {"lr": lr, "seed": seed, "net": {"size": 64}}
        (root / "hyperparameter" / "task" / index / "parameter.json").write_text(json.dumps(params))
    return root
