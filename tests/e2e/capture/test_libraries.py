"""Programs of further libraries, captured; each is skipped where its library is not installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.capture_lab import capture, capture_command, run_plain

pytestmark = pytest.mark.usefixtures("places")


def needs(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; `make test-capture` does it")


SB3 = """
import gymnasium as gym
from stable_baselines3 import PPO
env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, tensorboard_log="tb", seed=5)
model.learn(192)
print(len(model.logger.output_formats), model.policy.action_net.bias[0].item())
if "second" in __import__("sys").argv:
    second = PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    second.learn(64)
"""


def test_sb3(tmp_path: Path) -> None:
    found, plain = capture(tmp_path, SB3), run_plain(tmp_path / "plain", SB3)
    assert (found.code, found.stdout, found.stderr) == (0, plain.stdout, plain.stderr)
    run = found.run
    assert (run.table, run.about["state"]) == ("CartPole-v1-PPO", "finished")
    assert [row["time-step"] for row in run.rows] == ["64", "128", "192"]
    assert run.values()["train/learning_rate", 192] == 0.0003
    assert run.parameters["n_steps"] == 64
    assert not run.captured["errors"]
    assert "tensorboard" not in run.captured["sources"]  # SB3's own writer is inside of it


def test_a_second_sb3_model_has_its_own_run(tmp_path: Path) -> None:
    first, second = capture(tmp_path, SB3, "second").runs
    assert [row["time-step"] for row in first.rows] == ["64", "128", "192"]
    assert [row["time-step"] for row in second.rows] == ["32", "64"]
    assert first.parameters["n_steps"], second.parameters["n_steps"] == (64, 32)
    assert {first.about["state"], second.about["state"]} == {"finished"}


TRANSFORMERS = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return {"input_ids": torch.arange(8) % 30, "labels": index % 2}

config = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
    max_position_embeddings=16,
)
arguments = TrainingArguments(
    "out", max_steps=4, logging_steps=1, per_device_train_batch_size=4, report_to=["tensorboard"],
    use_cpu=True, save_strategy="no", seed=7,
)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Data())
trainer.train()
print(len(trainer.callback_handler.callbacks))
"""


def test_transformers(tmp_path: Path) -> None:
    needs("transformers", "accelerate")
    found = capture(tmp_path, TRANSFORMERS, name="finetune.py")
    assert found.code == 0, found.stderr
    run = found.run
    assert run.table == "finetune"
    assert [row["time-step"] for row in run.rows if row["train/loss"]] == ["1", "2", "3", "4"]
    assert run.parameters["max_steps"] == 4
    assert not run.captured["errors"]
    assert "tensorboard" not in run.captured["sources"]
    plain = run_plain(tmp_path / "plain", TRANSFORMERS)
    assert found.stdout.splitlines()[-1] == plain.stdout.splitlines()[-1]


LIGHTNING = """
import torch
import lightning as L

class Module(L.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, number):
        loss = self.layer(batch).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

data = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
trainer = L.Trainer(max_epochs=2, log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False,
    enable_checkpointing=False, enable_model_summary=False)
trainer.fit(Module(), data)
"""


def test_lightning(tmp_path: Path) -> None:
    needs("lightning")
    found = capture(tmp_path, LIGHTNING, name="fit.py")
    assert found.code == 0, found.stderr
    run = found.run
    assert run.table == "fit"
    assert len([key for key in run.values() if key[0] == "loss"]) == 8
    assert run.parameters["lr"] == 0.1
    assert not run.captured["errors"]


def test_accelerate(tmp_path: Path) -> None:
    needs("accelerate")
    script = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir="out")
accelerator.init_trackers("tuned", config={"lr": 0.5})
for step in range(3):
    accelerator.log({"loss": step / 2}, step=step)
accelerator.end_training()
"""
    found = capture(tmp_path, script)
    assert found.code == 0, found.stderr
    assert (found.run.table, found.run.parameters["lr"]) == ("tuned", 0.5)
    assert found.run.values() == {("loss", step): step / 2 for step in range(3)}


def test_mlflow(tmp_path: Path) -> None:
    needs("mlflow")
    script = """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("exp")
with mlflow.start_run():
    mlflow.log_params({"lr": 0.25})
    for step in range(3):
        mlflow.log_metric("loss", step / 2, step=step)
        mlflow.log_metrics({"acc": 0.5, "b": 1}, step=step)
"""
    found = capture(tmp_path, script)
    assert found.code == 0, found.stderr
    assert (found.run.table, found.run.parameters["lr"]) == ("exp", 0.25)
    assert len(found.run.rows) == 3
    assert len(found.run.values()) == 9


def test_trackio(tmp_path: Path) -> None:
    needs("trackio")
    script = """
import trackio
trackio.init(project="tracked", config={"lr": 0.125})
for step in range(3):
    trackio.log({"loss": step / 2})
trackio.finish()
"""
    found = capture(
        tmp_path, script, environment={"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    )
    assert found.code == 0, found.stderr
    assert (found.run.table, found.run.parameters["lr"]) == ("tracked", 0.125)
    assert found.run.values() == {("loss", step): step / 2 for step in range(3)}


WRITE = "\nfrom tensorboardX import SummaryWriter\nSummaryWriter('runs').add_scalar('a', 1.0, 1)\n"
PARSERS: dict[str, tuple[str, list[str], dict[str, object], str]] = {
    "tyro": (
        """
import tyro
from dataclasses import dataclass, field
@dataclass
class Optim:
    lr: float = 0.5
@dataclass
class Args:
    seed: int = 1
    num_envs: int = 4
    optim: Optim = field(default_factory=Optim)
args = tyro.cli(Args)
""",
        ["--seed", "3", "--optim.lr", "0.25"],
        {"seed": 3, "num_envs": 4, "optim": {"lr": 0.25}},
        "seed=3",
    ),
    "simple_parsing": (
        """
import simple_parsing
from dataclasses import dataclass
@dataclass
class Args:
    seed: int = 1
    lr: float = 0.5
args = simple_parsing.parse(Args)
""",
        ["--lr", "0.25"],
        {"seed": 1, "lr": 0.25},
        "lr=0.25",
    ),
    "absl": (
        """
from absl import app, flags
flags.DEFINE_integer("seed", 1, "seed")
flags.DEFINE_float("lr", 0.5, "rate")
def main(argv):
    WRITE
app.run(main)
""",
        ["--lr", "0.25"],
        {"seed": 1, "lr": 0.25},
        "lr=0.25",
    ),
    "click": (
        """
import click
@click.command()
@click.option("--seed", default=1)
@click.option("--learning-rate", default=0.5)
def main(seed, learning_rate):
    WRITE
main()
""",
        ["--learning-rate", "0.25"],
        {"seed": 1, "learning_rate": 0.25},
        "learning_rate=0.25",
    ),
    "hydra": (
        """
import hydra
@hydra.main(config_path=None, config_name="config", version_base=None)
def main(cfg):
    WRITE
from hydra.core.config_store import ConfigStore
ConfigStore.instance().store(name="config", node={"seed": 1, "optim": {"lr": 0.5}})
main()
""",
        ["optim.lr=0.25", "hydra.job.chdir=True"],
        {"seed": 1, "optim": {"lr": 0.25}},
        "optim.lr=0.25",
    ),
}


@pytest.mark.parametrize("library", PARSERS)
def test_parameters_of_command_lines(tmp_path: Path, library: str) -> None:
    needs(library)
    script, words, parameters, tracked = PARSERS[library]
    indented = "from tensorboardX import SummaryWriter; SummaryWriter('runs').add_scalar('a', 1.0, 1)"
    script = script.replace("WRITE", indented) if "WRITE" in script else script + WRITE
    found = capture(tmp_path, script, *words)
    assert (found.code, found.stderr) == (0, "")
    assert found.run.parameters.items() >= parameters.items()
    assert tracked in found.run.folder.name
    assert library in found.run.captured["sources"]
    assert not found.run.captured["errors"]


def test_environments_seeds_and_files(tmp_path: Path) -> None:
    script = """
import gymnasium, pickle, torch
from torch.utils.tensorboard import SummaryWriter
assert pickle.loads(pickle.dumps(gymnasium.make)) is gymnasium.make
torch.manual_seed(77)
env = gymnasium.make("CartPole-v1")
writer = SummaryWriter("runs/a")
writer.add_scalar("loss", 1.0, 10)
torch.save({"a": torch.ones(2)}, "model.pt")
"""
    found = capture(tmp_path, script, options=["--capture=+checkpoints"])
    assert (found.code, found.stderr) == (0, "")
    run = found.run
    assert run.parameters.items() >= {"env_id": "CartPole-v1", "seed": 77}.items()
    assert "seed=77" in run.folder.name
    assert run.captured["saved"] == {str(tmp_path / "model.pt"): 10}
    assert list((tmp_path / "data" / "checkpoint").rglob("model.pt"))


def test_a_module_and_the_programs_own_sitecustomize(tmp_path: Path) -> None:
    package = tmp_path / "zoo"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(WRITE)
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        "import sys\nif '_rla_capture' in sys.modules:\n    print('own sitecustomize')\n"
    )
    found = capture_command(tmp_path, sys.executable, "-m", "zoo.train", environment={"PYTHONPATH": str(own)})
    assert (found.code, found.stdout, found.stderr) == (0, b"own sitecustomize\n", "")
    assert found.run.table == "zoo"


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_interpreters_that_take_no_path(tmp_path: Path, flag: str) -> None:
    found = capture(tmp_path, "print('done')", flags=[flag])
    assert (found.code, found.stdout) == (0, b"done\n")
    assert "nothing was captured: no Python process loaded it" in found.stderr


def test_check_says_which_python_would_be_captured(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("open('ran', 'w')")
    rla = str(Path(sys.executable).with_name("rla"))
    done = subprocess.run(
        [rla, "capture", "check", "--json", "--", sys.executable, "program.py"],
        cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"captured_in": [sys.executable]}
    assert not (tmp_path / "ran").exists()
