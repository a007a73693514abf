"""Accelerate's training loop with our tracker beside its TensorBoard's."""

from __future__ import annotations

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


def test_its_own_tracker_with_our_module_in_wandbs_place(scripts: Scripts) -> None:
    """`log_with="wandb"` asks for the installed package; the tracker itself does not."""
    scripts.run(
        """
import sys
import rla_client.integrations.wandb
sys.modules["wandb"] = rla_client.integrations.wandb
from accelerate import Accelerator
from accelerate.tracking import WandBTracker

accelerator = Accelerator(log_with=WandBTracker("table"), cpu=True)
accelerator.init_trackers("table", config={"lr": 0.1})
for step in (1, 2):
    accelerator.log({"loss": step / 4}, step=step)
accelerator.end_training()
"""
    )
    (run,) = scripts.runs()
    assert [(row["time-step"], row["loss"]) for row in run.rows()] == [("1", "0.25"), ("2", "0.5")]
    assert run.parameters["lr"] == 0.1
