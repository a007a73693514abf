"""Users' scripts, run as they would run them: in a process and a folder of their own, beside a real agent."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rla_client.launcher.pending_streams import streams_of
from support.waiting import wait_until
from support.warm import run_python, slow_modules

COUNTER_ENV = """
import gymnasium
import numpy as np

class Counter(gymnasium.Env):
    '''Episode n has n + 3 steps, each worth its number; its picture says which step of which it is.'''
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-1, 1000, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = "rgb_array"
    episode = -1

    def __init__(self, first=0):
        self.episode = first - 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.at = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        ended = self.at == self.episode + 3
        return np.full(1, self.at, np.float32), float(self.at), ended, False, {}

    def render(self):
        return np.full((16, 16, 3), self.episode * 20 + self.at, np.uint8)
"""
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RunFolder:
    """What a run left behind."""

    log: Path
    data: Path

    @property
    def table(self) -> str:
        """Of the run."""
        return "/".join(self.log.relative_to(self.data / "log").parts[:-4])

    @property
    def state(self) -> dict[str, Any]:
        """run.json."""
        found: dict[str, Any] = json.loads((self.log / "run.json").read_text())
        return found

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameter file; the three copies are equal."""
        index = self.log.relative_to(self.data / "log")
        copies = {kind: next((self.data / kind / index).glob("parameter.*")) for kind in ("log", "code")}
        copies["hyperparameter"] = next((self.data / "hyperparameter" / index).glob("parameter.*"))
        assert len({path.read_bytes() for path in copies.values()}) == 1
        found: dict[str, Any] = yaml.safe_load(copies["log"].read_text())
        return found

    def folder(self, kind: str) -> Path:
        """The run's folder of a kind."""
        return self.data / kind / self.log.relative_to(self.data / "log")

    def rows(self) -> list[dict[str, str]]:
        """progress.csv without empty cells."""
        with (self.log / "progress.csv").open(newline="") as file:
            return [{key: cell for key, cell in row.items() if cell != ""} for row in csv.DictReader(file)]

    def scalars(self) -> dict[str, list[tuple[int, float]]]:
        """Tag → (step, value), as TensorBoard's own reader gives them."""
        return read_scalars(self.log / "tb" / "events")


def read_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag → (step, value) of a folder of event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]
    }


class Scripts:
    """Runs Python sources in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self, source: str, *arguments: str, fails: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a source as `script.py`."""
        path = self.folder / "script.py"
        path.write_text(source)
        done = run_python(
            [str(path), *arguments],
            cwd=self.folder,
            environment={**os.environ, "PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg", **environment},
            modules=slow_modules(source),
        )
        assert (done.returncode != 0) == fails, done
        return done

    def runs(self, count: int = 1) -> list[RunFolder]:
        """The runs in `data`, oldest first, once all have ended and lie in their files, films too."""
        data = self.folder / "data"

        def ended() -> bool:
            found = list((data / "log").rglob("run.json"))
            states = [json.loads(path.read_text())["state"] for path in found]
            if len(states) != count or "running" in states:
                return False
            # a run's end is told before its last jobs are done: these go from the spool when they are
            return not any(any(streams_of(os.path.realpath(path.parent))) for path in found)

        wait_until(ended, 60, lambda: f"{count} ended runs among {list(data.rglob('run.json'))}")
        found = [RunFolder(path.parent, data) for path in (data / "log").rglob("run.json")]
        return sorted(found, key=lambda run: float(run.state["opened"]))


@pytest.fixture(name="scripts")
def scripts_fixture(agent: Any, tmp_path: Path) -> Scripts:
    """Users' scripts, beside a running agent."""
    del agent
    folder = tmp_path / "project"
    folder.mkdir()
    return Scripts(folder)
