"""Launchers of these tests, written into folders of their own and started as programs."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from support.waiting import TIME_FACTOR

TRAINING = '''
import sys
import time
import gymnasium
import numpy as np
from rla_client.launcher import LocalRunner, logger, set_seed, tabular, wrap_experiment


class Policy:
    def __init__(self):
        self.weights = np.zeros(4)

    def get_action(self, observation):
        return int(observation @ self.weights + np.random.randn() > 0), {}


class Algo:
    """Random search: keeps a change of the weights if the return grew."""

    def __init__(self, policy, epoch_s):
        self.policy = policy
        self.best = -np.inf
        self.epoch_s = epoch_s

    def train(self, runner):
        for epoch in runner.step_epochs():
            old = self.policy.weights
            self.policy.weights = old + np.random.randn(4)
            paths = runner.obtain_samples(runner.step_itr)
            mean = float(np.mean([path["rewards"].sum() for path in paths]))
            if mean < self.best:
                self.policy.weights = old
            else:
                self.best = mean
            with tabular.prefix("perf/"):
                tabular.record("return", mean)
            if epoch >= 3:
                tabular.record("late", float(self.policy.weights.sum()))
            logger.log(f"return {mean}")
            runner.step_itr += 1
            time.sleep(self.epoch_s)
        return self.best


@wrap_experiment(@@)
def search(ctxt, seed=1, epochs=12, epoch_s=0.0, noise=np.float32(0.5)):
    set_seed(seed)
    runner = LocalRunner(snapshot_config=ctxt)
    env = gymnasium.make("CartPole-v1")
    runner.setup(Algo(Policy(), epoch_s), env)
    return runner.train(n_epochs=epochs, batch_size=60)

'''

FIXED_HASH = {"PYTHONHASHSEED": "0"}
DEADLINE_S = 60 * TIME_FACTOR  # of a program


def write(folder: Path, options: str = "", calls: str = "search()") -> Path:
    """Write a launcher of the random search; `calls` stands at top level, without a guard."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "launcher.py"
    path.write_text(TRAINING.replace("@@", options) + calls + "\n")
    return path


def start(path: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a launcher in its folder."""
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        cwd=path.parent,
        env={**os.environ, **FIXED_HASH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    return process


def printed(process: subprocess.Popen[str]) -> IO[str]:
    """What it prints, line by line."""
    assert process.stdout is not None
    return process.stdout


def run(path: Path, *arguments: str) -> str:
    """Run a launcher to its end; its output."""
    process = start(path, *arguments)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, output
    return output


def rows(log_dir: Path, *, time: bool = False) -> list[dict[str, str]]:
    """Rows of progress.csv, without the timestamp."""
    try:
        with open(log_dir / "progress.csv", newline="") as file:
            found = list(csv.DictReader(file))
    except FileNotFoundError:
        return []
    if not time:
        for row in found:
            del row["timestamp"]
    return found
