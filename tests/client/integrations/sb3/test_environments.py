"""Environments continue in the middle of their episodes, whatever their wrappers hold."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

import gymnasium
import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from rla_client.integrations.sb3.environments import environment_states, layers_of, restore_environments


class Biased(gymnasium.Wrapper):  # type: ignore[misc] # untyped
    """Adds what the innermost environment, which it also knows by itself, has been through."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.base = env.unwrapped
        self.scale: Any = lambda value: value * 2
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, *rest = self.env.step(action)
        return observation, self.scale(reward) + self.steps + self.base.state[0], *rest


class Generating(gymnasium.Wrapper):  # type: ignore[misc]
    """Holds what nobody can copy, and what its rewards depend on."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.numbers = (number for number in range(1000))


def played(envs: Any, steps: int) -> list[Any]:
    """What `steps` steps give."""
    found = []
    for step in range(steps):
        observations, rewards, dones, _ = envs.step(np.array([step % 2, 1]))
        found.append((observations.tolist(), rewards.tolist(), dones.tolist()))
    return found


@pytest.mark.parametrize("wrapper", [None, Biased])
def test_an_episode_goes_on_beside_an_open_file_and_a_lambda(tmp_path: Path, wrapper: Any) -> None:
    def made(folder: str) -> Any:
        monitors = None if folder == "none" else str(tmp_path / folder)
        return VecNormalize(
            make_vec_env("CartPole-v1", 2, seed=1, monitor_dir=monitors, wrapper_class=wrapper)
        )

    for folder in ("files", "none"):
        first, second = made(folder), made(folder)
        first.reset()
        played(first, 13)
        states = pickle.loads(pickle.dumps(environment_states(first)))
        second.reset()
        assert restore_environments(second, states, [name for name, _ in layers_of(first)])
        assert played(second, 40) == played(first, 40)
        if wrapper is not None:
            (inner, *_) = second.venv.envs
            assert inner.base is inner.unwrapped


def test_what_nobody_can_copy_begins_anew_and_wrappers_continue() -> None:
    first, second = (VecNormalize(make_vec_env("CartPole-v1", 2, wrapper_class=Generating)) for _ in range(2))
    first.reset()
    played(first, 5)
    states = environment_states(first)
    assert states[1] is None
    second.reset()
    assert not restore_environments(second, states, ["VecNormalize", "DummyVecEnv"])
    assert second.obs_rms.count == first.obs_rms.count


def test_wrappers_are_known_by_name_where_there_are_others_now() -> None:
    first = VecNormalize(make_vec_env("CartPole-v1", 2, seed=1))
    first.reset()
    played(first, 5)
    names = [name for name, _ in layers_of(first)]
    now = VecMonitor(VecNormalize(make_vec_env("CartPole-v1", 2, seed=1)))
    now.reset()
    states = pickle.dumps(environment_states(first))
    assert not restore_environments(now, pickle.loads(states), names)
    assert now.venv.obs_rms.count == first.obs_rms.count
    assert now.episode_count == 0
    unnamed = VecNormalize(make_vec_env("CartPole-v1", 2, seed=1))
    unnamed.reset()
    assert restore_environments(unnamed, pickle.loads(states), None)
    assert played(unnamed, 9) == played(first, 9)
