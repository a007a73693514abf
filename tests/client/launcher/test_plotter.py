from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from environments import Counting, Drawing

from rla_client.launcher import LocalRunner, SnapshotConfig
from rla_client.launcher.deterministic import set_seed

shown: list[str] = []


class Screen(Counting):
    """Notes what a window would show."""

    render_mode = "human"
    copy = False

    def reset(self, **given: Any) -> Any:
        if self.copy:
            shown.append("reset")
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        if self.copy:
            shown.append("step")
        return super().step(action)

    def close(self) -> None:
        shown.append("close")

    def __getstate__(self) -> Any:
        return {**self.__dict__, "copy": True}


class NoDisplay(Screen):
    def step(self, action: Any) -> Any:
        if self.copy:
            raise RuntimeError("no display")
        return super().step(action)


class Algo:
    policy = Drawing()

    def train(self, runner: Any) -> list[float]:
        drawn = []
        for _ in runner.step_epochs():
            runner.obtain_samples(runner.step_itr)
            runner.step_itr += 1
            drawn.append(float(np.random.rand()))  # noqa: NPY002 - the generator that a plot must not touch
        return drawn


def train(env: Any, folder: Path, **options: Any) -> Any:
    set_seed(1)
    shown.clear()
    runner = LocalRunner(SnapshotConfig(str(folder), "none", 1))
    runner.setup(Algo(), env)
    return runner.train(n_epochs=2, batch_size=5, **options)


def test_an_episode_is_shown_after_each_epoch_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = train(Screen(), tmp_path)
    assert shown == []
    assert train(Screen(), tmp_path, plot=True, pause_for_plot=True) == without
    assert shown == ["reset", *["step"] * 5] * 2 + ["close"]
    assert capsys.readouterr().out.count("pause_for_plot does not pause") == 2


@pytest.mark.parametrize(
    ("env", "why"), [(Counting, "render_mode='human'"), (NoDisplay, "RuntimeError: no display")]
)
def test_what_cannot_be_shown_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], env: Any, why: str
) -> None:
    assert train(env(), tmp_path, plot=True) == train(env(), tmp_path)
    out = capsys.readouterr().out
    assert out.count("plot=True shows nothing") == out.count(why) == 1
