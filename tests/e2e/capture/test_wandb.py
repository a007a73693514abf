"""Programs that log to wandb, captured: beside the installed wandb, and in its place."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from support.capture_lab import capture

pytestmark = pytest.mark.usefixtures("places")
INSTALLED = importlib.util.find_spec("wandb") is not None

TRAIN = """
import argparse
import os
import numpy as np
import wandb
from tensorboardX import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
wandb.init(project="proj", config={"lr": 0.1, "seed": 9}, name="first", sync_tensorboard="sync" in os.environ)
writer = SummaryWriter("runs/a")
for step in range(1, 5):
    writer.add_scalar("loss", step / 3, step)
    wandb.log({"loss": step / 3, "other": step, "nested": {"a": 1}}, step=step)
wandb.config.update({"extra": 5})
wandb.log({"hist": wandb.Histogram(np.arange(9)), "table": wandb.Table(columns=["a"], data=[[1], [2]])})
wandb.run.summary["best"] = 7.5
wandb.finish()
"""


@pytest.mark.skipif(not INSTALLED, reason="wandb is not installed; `make test-capture` does it")
def test_beside_wandb(tmp_path: Path) -> None:
    found = capture(
        tmp_path, TRAIN, "--seed", "2", environment={"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    )
    assert found.code == 0, found.stderr
    run = found.run
    assert (run.table, run.about["state"]) == ("proj", "finished")
    assert run.parameters.items() >= {"lr": 0.1, "seed": 9, "extra": 5}.items()
    assert "seed=9" in run.folder.name
    values = run.values()
    assert {tag for tag, _ in values} == {"loss", "other", "nested.a"}
    assert len(run.rows) == 4
    assert values["loss", 4] == 4 / 3
    assert not run.captured["errors"]
    assert run.captured["sources"]["wandb"]["histogram"] == 1
    assert list((tmp_path / "data" / "results").rglob("*table*"))


@pytest.mark.skipif(not INSTALLED, reason="wandb is not installed; `make test-capture` does it")
@pytest.mark.further
def test_each_run_of_wandb_is_a_run(tmp_path: Path) -> None:
    script = """
import wandb
for lr in (0.1, 0.2):
    with wandb.init(project="sweep", config={"lr": lr}) as run:
        run.log({"loss": lr})
"""
    found = capture(tmp_path, script, environment={"WANDB_MODE": "offline", "WANDB_SILENT": "true"})
    assert [run.parameters["lr"] for run in found.runs] == [0.1, 0.2], found.stderr
    assert [run.values()["loss", 0] for run in found.runs] == [0.1, 0.2]


@pytest.mark.slow
@pytest.mark.skipif(INSTALLED, reason="wandb is installed here")
@pytest.mark.parametrize("sync", ["", "sync"])
def test_in_the_place_of_wandb(tmp_path: Path, sync: str) -> None:
    (tmp_path / "wandb").mkdir()  # what wandb left; it is no package
    found = capture(tmp_path, TRAIN, options=["--table", "mine"], environment={sync: "1"} if sync else {})
    assert (found.code, found.stdout, found.stderr) == (0, b"", "")
    run = found.run
    assert (run.table, run.about["state"]) == ("mine", "finished")
    assert len(run.rows) == 4
    assert run.values()["loss", 4] == 4 / 3
    assert run.parameters.items() >= {"lr": 0.1, "extra": 5}.items()


@pytest.mark.skipif(INSTALLED, reason="wandb is installed here")
@pytest.mark.further
def test_who_can_do_without_wandb_finds_none(tmp_path: Path) -> None:
    script = """
import importlib.util
print(importlib.util.find_spec("wandb"))
try:
    import wandb
except ImportError:
    print("none")
"""
    assert capture(tmp_path, script).stdout == b"None\nnone\n"
    found = capture(tmp_path, script.replace("print(imp", "(imp"), options=["--capture=replace"])
    assert found.stdout == b""
