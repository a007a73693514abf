"""Accelerate's training loop with our tracker beside its TensorBoard's."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import Scripts, read_scalars

pytest.importorskip("accelerate", reason="accelerate is not installed: make test-integrations")
pytestmark = pytest.mark.slow


def test_rows_are_what_its_own_tracker_gets(scripts: Scripts) -> None:
    scripts.run(
        """
import numpy as np, torch
from accelerate import Accelerator
from rla_client.integrations.accelerate import RLATracker

torch.manual_seed(0)
tracker = RLATracker("linear", track=["lr"])
accelerator = Accelerator(log_with=["tensorboard", tracker], project_dir="theirs", cpu=True)
accelerator.init_trackers("x", config={"lr": 0.1, "epochs": 3})
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for epoch in range(3):
    for batch in data:
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.log({"loss": loss.item(), "split": {"a": 1.0 * epoch, "b": 2}, "word": "text"}, step=epoch)
tracker.log_images({"picture": [np.zeros((4, 4, 3), np.uint8)] * 2}, step=2)
assert accelerator.get_tracker("rla", unwrap=True).run is not None
accelerator.log({"last": 1.0})
accelerator.end_training()
from rla_client import exp_manager
assert exp_manager.run is None
"""
    )
    (run,) = scripts.runs()
    theirs: dict[str, Any] = {}
    for folder in {path.parent for path in (scripts.folder / "theirs").rglob("events*")}:
        theirs |= read_scalars(folder)
    assert run.scalars()["loss"] == theirs["loss"]
    rows = run.rows()
    assert [row["time-step"] for row in rows] == ["0", "1", "2", "3"]
    assert [float(row["split/a"]) for row in rows[:3]] == [0.0, 1.0, 2.0]
    assert (rows[0]["word"], rows[3]["last"]) == ("text", "1.0")
    assert run.parameters == {"lr": 0.1, "epochs": 3}
    assert (run.table, run.state["state"]) == ("linear", "finished")
    assert "&lr=0.1" in run.log.name
    assert {path.name for path in run.folder("results").glob("*.png")} == {
        "2-picture_0.png",
        "2-picture_1.png",
    }


def test_the_scripts_run_goes_on(scripts: Scripts) -> None:
    scripts.run(
        """
import rla_client
from accelerate import Accelerator
from rla_client.integrations.accelerate import RLATracker

rla_client.init("mine", config={"a": 1})
accelerator = Accelerator(log_with=RLATracker("other"), cpu=True)
accelerator.init_trackers("x", config={"b": 2})
accelerator.log({"loss": 0.5}, step=7)
accelerator.end_training()
rla_client.log({"after": 1.0}, step=8)
"""
    )
    (run,) = scripts.runs()
    assert (run.table, run.parameters) == ("mine", {"a": 1, "b": 2})
    assert [row["time-step"] for row in run.rows()] == ["7", "8"]


def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """from accelerate import Accelerator
from rla_client.integrations.accelerate import RLATracker
accelerator = Accelerator(cpu=True, log_with=RLATracker("x"))
accelerator.init_trackers("x", config={"lr": 1})""",
        """accelerator.log({"loss": step}, step=step)""",
    )


WANDB = """
import sys
import numpy as np
import rla_client.integrations.wandb
sys.modules["wandb"] = rla_client.integrations.wandb
from accelerate import Accelerator

accelerator = Accelerator(log_with="wandb", cpu=True)
its_own = {"name": "first", "tags": ["a"]}
accelerator.init_trackers("table", config={"lr": 0.1}, init_kwargs={"wandb": its_own})
for step in (1, 2):
    accelerator.log({"loss": step / 4, "split": {"a": step}}, step=step)
tracker = accelerator.get_tracker("wandb")
tracker.log_images({"picture": [np.zeros((4, 4, 3), np.uint8)] * 2}, step=2)
tracker.log_table("seen", columns=["a"], data=[["x"]], step=2)
run = accelerator.get_tracker("wandb", unwrap=True)
run.summary["best"] = 3
run.log({"direct": 1.0}, step=3)
accelerator.end_training()
"""


def test_log_with_wandb_and_our_module_in_its_place(scripts: Scripts) -> None:
    scripts.run(WANDB)
    (run,) = scripts.runs()
    found = [{name: cell for name, cell in row.items() if name != "timestamp" and cell} for row in run.rows()]
    assert found == [
        {"loss": "0.25", "split.a": "1", "time-step": "1"},
        {"loss": "0.5", "split.a": "2", "time-step": "2"},
        {"direct": "1.0", "time-step": "3"},
    ]
    assert (run.table, run.parameters["lr"], run.parameters["name"]) == ("table", 0.1, "first")
    assert json.loads((run.log / "summary.json").read_text())["best"] == 3
    files = {path.name for path in run.folder("results").iterdir()}
    assert files == {"2-picture_0.png", "2-picture_1.png", "2-seen.csv"}


def test_metadata_of_wandb_is_there_only_where_ours_stands_for_it(scripts: Scripts) -> None:
    if importlib.util.find_spec("wandb") is not None:
        pytest.skip("wandb is installed here")
    scripts.run(
        """
import importlib.metadata, sys
import rla_client.integrations.wandb as ours

def version():
    try:
        return importlib.metadata.version("wandb")
    except importlib.metadata.PackageNotFoundError:
        return None

assert version() is None
sys.modules["wandb"] = ours
assert version() == ours.__version__
assert importlib.metadata.metadata("wandb")["Name"] == "wandb"
assert "wandb" not in [found.metadata["Name"] for found in importlib.metadata.distributions()]
del sys.modules["wandb"]
assert version() is None
"""
    )
