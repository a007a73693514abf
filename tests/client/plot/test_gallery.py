"""The lines of docs/gallery.md do what they say, and each picture that it shows is there and small."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
MAX_PICTURE_BYTES = 100_000
PAGE = (DOCS / "gallery.md").read_text(encoding="utf-8")


def write_runs(root: Path) -> None:
    for number, (lr, seed) in enumerate((lr, seed) for lr in (0.0015, 0.0003) for seed in range(1, 6)):
        index = f"2026/11/21/09-30-{number:02}-123456_noip_&seed={seed}&lr={lr}"
        for kind in ("log", "hyperparameter"):
            (root / kind / "ppo_cartpole" / index).mkdir(parents=True)
        log = root / "log" / "ppo_cartpole" / index
        rows = [
            f"{20 + lr * 9000 * step + seed},{0.7 - step / 90},{30 - step},{step * 2048}"
            for step in range(1, 31)
        ]
        header = "perf/return,loss/entropy,loss/value,time-step"
        (log / "progress.csv").write_text("\n".join([header, *rows]) + "\n")
        (log / "run.json").write_text(
            json.dumps({"format": 1, "state": "finished", "opened": 1.8e9 + number})
        )
        text = json.dumps({"lr": lr, "seed": seed})
        (root / "hyperparameter" / "ppo_cartpole" / index / "parameter.json").write_text(text)


@pytest.mark.slow
def test_every_block_runs_and_makes_its_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path / "demo_data" / "data")
    (tmp_path / "gallery").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLA_DATA_ROOT", "demo_data/data")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    names: dict[str, object] = {}
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", PAGE, re.DOTALL):
        if language == "python":
            exec(compile(block, "gallery.md", "exec"), names)
            continue
        for line in block.splitlines():
            if line.startswith("rla "):
                command = [sys.executable, "-m", "rla_client.cli.app", *shlex.split(line)[1:]]
                subprocess.run(command, check=True, capture_output=True)
    saved = tmp_path / "demo_data" / "data" / "results" / "easy_plot" / "gallery.png"
    made = set(os.listdir(tmp_path / "gallery")) | ({"plot_func.png"} if saved.exists() else set())
    assert made >= set(re.findall(r"\(gallery/(\w+\.png)\)", PAGE))


def test_the_pictures_are_there_and_small() -> None:
    shown = set(re.findall(r"\(gallery/(\w+\.png)\)", PAGE))
    assert shown == set(os.listdir(DOCS / "gallery"))
    assert max((DOCS / "gallery" / name).stat().st_size for name in shown) < MAX_PICTURE_BYTES
