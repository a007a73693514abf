"""Small programs of libraries that know nothing of rla_client."""

from __future__ import annotations

import importlib.util

import pytest


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

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir="out")
accelerator.init_trackers("tuned", config={"lr": 0.5})
for step in range(3):
    accelerator.log({"loss": step / 2}, step=step)
accelerator.end_training()
"""

ACCELERATE_WANDB = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, log_with="wandb")
accelerator.init_trackers("tuned", config={"lr": 0.5}, init_kwargs={"wandb": {"name": "first"}})
for step in range(3):
    accelerator.log({"loss": step / 2, "split": {"a": step}}, step=step)
accelerator.get_tracker("wandb", unwrap=True).log({"own": 7}, step=3)
accelerator.end_training()
"""


MLFLOW = """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("exp")
with mlflow.start_run():
    mlflow.log_params({"lr": 0.25})
    for step in range(3):
        mlflow.log_metric("loss", step / 2, step=step)
        mlflow.log_metrics({"acc": 0.5, "b": 1}, step=step)
"""


TRACKIO = """
import trackio
trackio.init(project="tracked", config={"lr": 0.125})
for step in range(3):
    trackio.log({"loss": step / 2})
trackio.finish()
"""


SWANLAB = """
import swanlab
run = swanlab.init(project="tracked", mode="offline", config={"lr": 0.125})
for step in range(3):
    swanlab.log({"loss": step / 2, "group": {"a": 1}})
run.log({"loss": 7.0})
swanlab.finish()
"""


RSL_RL = """
import torch
from tensordict import TensorDict
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner

class Walk(VecEnv):
    num_envs, num_actions, max_episode_length, device, cfg = 4, 2, 8, "cpu", {}
    def __init__(self):
        self.episode_length_buf = torch.zeros(4, dtype=torch.long)
        self.at = torch.zeros(4, 2)
    def get_observations(self):
        return TensorDict({"state": self.at.clone()}, batch_size=[4])
    def step(self, actions):
        self.at = self.at + 0.1 * actions.clamp(-1, 1)
        dones = torch.ones(4, dtype=torch.bool)
        return self.get_observations(), self.at[:, 0], dones.long(), {"time_outs": dones, "log": {}}

model = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu"}
config = {
    "seed": 3, "num_steps_per_env": 8, "save_interval": 50, "logger": "tensorboard",
    "obs_groups": {"actor": ["state"], "critic": ["state"]},
    "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1},
    "actor": {**model, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
    "critic": model,
}
OnPolicyRunner(Walk(), config, log_dir="logs/walk").learn(3)
"""


WRITE = "\nfrom tensorboardX import SummaryWriter\nSummaryWriter('runs').add_scalar('a', 1.0, 1)\n"
#: library → script, words, hyper-parameters, what the index has of them
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
    "docopt": (
        '''
"""A program.

Usage: program.py [--run-id=<name>] [--learning-rate=<rate>] [--commit=<id>] [--tag=<tag>] [--cpu] [<env>]

Options:
    --run-id=<name>         its name [default: run]
    --learning-rate=<rate>  of Adam [default: 0.5]
    --commit=<id>           of the code [default: 12e4567]
    --tag=<tag>             any [default: 007]
    --cpu                   no GPU
"""
from docopt import docopt
options = docopt(__doc__)
assert options["--learning-rate"] == "0.25"
''',
        ["--learning-rate", "0.25", "CartPole-v1"],
        {
            "run_id": "run",
            "learning_rate": 0.25,
            "commit": "12e4567",
            "tag": "007",
            "cpu": False,
            "env": "CartPole-v1",
        },
        "learning_rate=0.25",
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


def parsing_program(library: str) -> str:
    """The script of PARSERS, which writes one scalar."""
    script = PARSERS[library][0]
    indented = "from tensorboardX import SummaryWriter; SummaryWriter('runs').add_scalar('a', 1.0, 1)"
    return script.replace("WRITE", indented) if "WRITE" in script else script + WRITE
