# ruff: noqa: ARG002
# (signatures are those of policies and environments)
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from environments import Counting

from rla_client.launcher import log_performance, obtain_evaluation_episodes, tabular
from rla_client.launcher.sampling.local_sampler import LocalSampler


class Succeeding(Counting):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "success": self.drawn > 0.5}


class Gaussian:
    """Gives a drawn action and its mean."""

    resets = 0

    def get_action(self, observation: Any) -> Any:
        return 1, {"mean": 0}

    def reset(self) -> None:
        self.resets += 1


def test_the_row_of_an_evaluation() -> None:
    batch = LocalSampler(Gaussian(), Succeeding(), seed=2, max_episode_length=None).obtain_samples(0, 20)
    tabular.clear()
    assert log_performance(7, batch, discount=0.5) == [5.0] * 4
    row = tabular.as_dict
    tabular.clear()
    drawn = batch.observations[::5, 0]
    assert row["Evaluation/SuccessRate"] == pytest.approx(np.mean(drawn > 0.5))
    assert row["Evaluation/AverageDiscountedReturn"] == 1.9375
    assert (row["Evaluation/Iteration"], row["Evaluation/NumEpisodes"]) == (7, 4)
    assert row["Evaluation/AverageReturn"] == row["Evaluation/MaxReturn"] == row["Evaluation/MinReturn"] == 5
    assert (row["Evaluation/StdReturn"], row["Evaluation/TerminationRate"]) == (0, 1)


def test_evaluation_episodes_repeat_and_take_the_mean() -> None:
    policy = Gaussian()
    first = obtain_evaluation_episodes(policy, Counting(), max_episode_length=3, num_eps=4)
    assert first.lengths.tolist() == [3] * 4
    assert set(first.actions) == {0}
    assert policy.resets == 4
    second = obtain_evaluation_episodes(
        policy, Counting(), max_episode_length=3, num_eps=4, deterministic=False
    )
    assert set(second.actions) == {1}
    assert np.array_equal(first.observations, second.observations)
