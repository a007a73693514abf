"""rsl_rl's own runner with our log writer, named in its configuration."""

from __future__ import annotations

import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import Scripts, read_scalars

pytest.importorskip("rsl_rl", reason="rsl-rl-lib is not installed: make test-integrations")
pytestmark = pytest.mark.slow

TRAINING = """
import sys, types
import torch
from tensordict import TensorDict
from torch.utils.tensorboard import SummaryWriter
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner

class Walk(VecEnv):
    num_envs, num_actions, max_episode_length, device = 4, 2, 8, "cpu"
    cfg = {"gravity": -9.81}
    def __init__(self):
        self.episode_length_buf = torch.zeros(4, dtype=torch.long)
        self.at = torch.zeros(4, 2)
    def get_observations(self):
        return TensorDict({"state": self.at.clone()}, batch_size=[4])
    def step(self, actions):
        self.at = (self.at + 0.1 * actions.clamp(-1, 1)).clone()
        self.episode_length_buf += 1
        dones = self.episode_length_buf >= self.max_episode_length
        self.at[dones], self.episode_length_buf[dones] = 0.0, 0
        reward = self.at[:, 0]
        extras = {"time_outs": dones, "log": {"height": self.at[:, 1].mean(), "group/x": reward.mean()}}
        return self.get_observations(), reward, dones.long(), extras

def train(logger, log_dir):
    model = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu"}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    config = {
        "seed": 3, "num_steps_per_env": 8, "save_interval": 2,
        "obs_groups": {"actor": ["state"], "critic": ["state"]},
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1},
        "actor": {**model, "distribution_cfg": gaussian}, "critic": model, "logger": logger,
    }
    OnPolicyRunner(Walk(), config, log_dir=log_dir).learn(4)
"""


def test_an_iteration_is_a_row_of_what_tensorboard_gets(scripts: Scripts) -> None:
    scripts.run(
        TRAINING
        + """
from rla_client.integrations.rsl_rl import RLALogWriter
both = SummaryWriter("theirs")
class Both(RLALogWriter):
    def add_scalar(self, *args):
        both.add_scalar(*args)
        super().add_scalar(*args)
train({"class_name": Both, "track": ("seed",)}, "logs/walk/2026-01-01")
both.close()
"""
    )
    (run,) = scripts.runs()
    theirs = read_scalars(scripts.folder / "theirs")
    over_seconds = {tag for tag in theirs if tag.endswith("/time")}
    assert len(over_seconds) == 2
    ours = {tag: values for tag, values in run.scalars().items() if tag not in {"time-step", "timestamp"}}
    assert ours == {tag: values for tag, values in theirs.items() if tag not in over_seconds}
    assert [row["time-step"] for row in run.rows()] == ["0", "1", "2", "3"]
    assert {"Episode/height", "group/x", "Loss/value", "Train/mean_reward"} <= run.rows()[-1].keys()
    assert (run.table, run.state["state"]) == ("walk", "finished")
    assert "&seed=3" in run.log.name
    assert run.parameters["algorithm"]["num_mini_batches"] == 1
    assert run.parameters["env"] == {"gravity": -9.81}
    models = {path.name: path for path in run.folder("checkpoint").glob("model_*.pt")}
    assert models.keys() == {"model_0.pt", "model_2.pt", "model_3.pt"}
    original = scripts.folder / "logs" / "walk" / "2026-01-01" / "model_3.pt"
    assert models["model_3.pt"].read_bytes() == original.read_bytes()


def test_the_name_of_the_class_is_enough(scripts: Scripts) -> None:
    scripts.run(TRAINING + 'train({"class_name": "rla_client.integrations.rsl_rl:RLALogWriter"}, "logs/w/1")')
    (run,) = scripts.runs()
    assert len(run.rows()) == 4


def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """from rla_client.integrations.rsl_rl import RLALogWriter
ours = RLALogWriter("logs/x")
ours.store_config({}, {"lr": 1})""",
        """ours.add_scalar("loss", step, step)""",
    )
