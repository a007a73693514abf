"""Lightning's Trainer with our logger beside its CSVLogger."""

from __future__ import annotations

import csv

import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import Scripts

pytest.importorskip("lightning", reason="lightning is not installed: make test-integrations")
pytestmark = pytest.mark.slow


def test_rows_are_those_of_its_csv_logger(scripts: Scripts) -> None:
    scripts.run(
        """
import torch, lightning
from lightning.pytorch.loggers import CSVLogger
from rla_client.integrations.lightning import RLALogger

class Module(lightning.LightningModule):
    def __init__(self, lr, layers):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(3, 1)
    def training_step(self, batch, index):
        loss = self.net(batch).pow(2).mean()
        self.log("train/loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val/loss", self.net(batch).pow(2).mean())
    def test_step(self, batch, index):
        self.log("test/loss", self.net(batch).pow(2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

lightning.seed_everything(0)
data = torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=2)
ours = RLALogger("linear", {"lr": 0.1, "seed": 0}, ["lr"])
trainer = lightning.Trainer(
    logger=[ours, CSVLogger("theirs")], max_epochs=2, log_every_n_steps=2,
    accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
)
module = Module(lr=0.1, layers=[4, 2])
trainer.fit(module, data, data)
trainer.test(module, data)
second = lightning.Trainer(
    logger=RLALogger("linear"), max_epochs=1, accelerator="cpu", enable_progress_bar=False,
    enable_model_summary=False, enable_checkpointing=False, log_every_n_steps=1,
)
second.fit(Module(lr=0.1, layers=[]), data)
"""
    )
    run, second = scripts.runs(2)
    assert [row["time-step"] for row in second.rows()] == ["0", "1", "2", "3"]
    (theirs,) = (scripts.folder / "theirs").rglob("metrics.csv")
    with theirs.open(newline="") as file:
        rows = [{key: float(cell) for key, cell in row.items() if cell} for row in csv.DictReader(file)]
    wanted: dict[tuple[str, float], float] = {
        (key, row["step"]): value for row in rows for key, value in row.items() if key != "step"
    }
    ours = {
        (key, float(row["time-step"])): float(cell)
        for row in run.rows()
        for key, cell in row.items()
        if key not in {"time-step", "timestamp"}
    }
    assert ours == wanted
    assert {"train/loss", "val/loss", "test/loss", "epoch"} == {key for key, _ in ours}
    assert (run.table, run.state["state"]) == ("linear", "finished")
    assert "&lr=0.1" in run.log.name
    assert run.parameters == {"lr": 0.1, "seed": 0, "layers": [4, 2]}
    checkpoints = [path.name for path in run.folder("checkpoint").rglob("*.ckpt")]
    assert checkpoints == ["epoch=1-step=8.ckpt"]


def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """from rla_client.integrations.lightning import RLALogger
ours = RLALogger("x")
ours.log_hyperparams({"lr": 1})""",
        """ours.log_metrics({"loss": step}, step)""",
    )
