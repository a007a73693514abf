"""TorchRL's collector and recorder with our logger in the place of its CSVLogger."""

from __future__ import annotations

import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import Scripts, read_scalars

pytest.importorskip("torchrl", reason="torchrl is not installed: make test-integrations")
pytestmark = pytest.mark.slow


def test_rows_films_and_parameters(scripts: Scripts) -> None:
    scripts.run(
        """
import gymnasium, numpy as np, torch
from torchrl.envs import GymWrapper, TransformedEnv
from torchrl.record import VideoRecorder
from torchrl.record.loggers import TensorboardLogger
from omegaconf import OmegaConf
from rla_client.integrations.torchrl import RLALogger

torch.manual_seed(0)
logger = RLALogger("cartpole", config=OmegaConf.create({"lr": 0.1, "net": {"cells": 4}}), track=["lr"])
theirs = TensorboardLogger("theirs", "tb")
logger.log_hparams({"frames": 30})
assert logger.experiment is not None and logger.log_dir and "cartpole" in repr(logger)

class Frames(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros((16, 16, 3), np.uint8), {}
    def step(self, action):
        self.at += 1
        return np.full((16, 16, 3), 40 * self.at, np.uint8), 1.0, False, self.at >= 5, {}

for step in range(3):
    values = {"loss": torch.tensor(1.0 / (step + 1)), "reward": 2.0 * step}
    assert logger.log_metrics(values, step=step * 10)["reward"] == 2.0 * step
    theirs.log_metrics(values, step=step * 10)
    logger.log_scalar("lr", 0.1, step=step * 10)
    theirs.log_scalar("lr", 0.1, step=step * 10)
recorder = VideoRecorder(logger, tag="evaluation/film", skip=1)
env = TransformedEnv(GymWrapper(Frames()), recorder)
env.rollout(5)
recorder.dump(suffix="end", step=20)
logger.log_video("batch", torch.zeros(2, 4, 3, 16, 16, dtype=torch.uint8), step=30)
logger.log_histogram("weights", torch.arange(9.0), step=20)
logger.log_str("note", "words", step=20)
theirs.experiment.close()
logger.close()
RLALogger("second").log_scalar("loss", 1.0, step=1)
"""
    )
    run, second = scripts.runs(2)
    assert (second.table, second.scalars()["loss"]) == ("second", [(1, 1.0)])
    (folder,) = {path.parent for path in (scripts.folder / "tb").rglob("events*")}
    ours = {tag: values for tag, values in run.scalars().items() if tag not in {"time-step", "timestamp"}}
    assert ours == read_scalars(folder)
    rows = [{key: row[key] for key in ("time-step", "reward", "loss", "lr")} for row in run.rows()]
    assert [row["time-step"] for row in rows] == ["0", "10", "20"]
    assert [float(row["reward"]) for row in rows] == [0.0, 2.0, 4.0]
    assert run.parameters == {"lr": 0.1, "net": {"cells": 4}, "frames": 30}
    assert (run.table, run.state["state"]) == ("cartpole", "finished")
    films = {
        path.relative_to(run.folder("results")).as_posix() for path in run.folder("results").rglob("*.mp4")
    }
    assert films == {"evaluation/20-film_end.mp4", "30-batch.mp4"}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tags = EventAccumulator(str(run.log / "tb" / "events")).Reload().Tags()
    assert "weights" in tags["histograms"]
    assert any(tag.startswith("note") for tag in tags["tensors"])


def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """from rla_client.integrations.torchrl import RLALogger
ours = RLALogger("x")""",
        """ours.log_scalar("loss", step, step)""",
    )
