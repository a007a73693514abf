"""Callbacks of SB3 and of users continue with what they had found, and as the script has them now."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env

from rla_client.integrations.sb3.callbacks import callback_states, note_beginning, restore_callbacks


class Ours(BaseCallback):  # type: ignore[misc] # untyped
    """Stands where `RLACallback` does."""

    def _on_step(self) -> bool:
        return True


class Users(BaseCallback):  # type: ignore[misc]
    """Keeps what users keep."""

    def __init__(self, best: float = 0.0, every: int = 3, *, seen: list[int] | None = None) -> None:
        super().__init__()
        self.best, self.every = best, every
        self.seen = seen or []
        self.steps: list[int] = []
        self.policy: Any = None
        self.shown = lambda value: value

    def _on_training_start(self) -> None:
        self.policy = self.model.policy
        self.steps = []

    def _on_step(self) -> bool:
        self.best += 1
        self.steps.append(self.num_timesteps)
        return True


def callbacks(every: int = 3) -> CallbackList:
    """A nested list of them."""
    judging = EvalCallback(
        make_vec_env("CartPole-v1", 1, seed=3),
        callback_on_new_best=StopTrainingOnRewardThreshold(1e9),
        callback_after_eval=StopTrainingOnNoModelImprovement(100),
        eval_freq=10,
        n_eval_episodes=1,
        verbose=0,
        warn=False,
    )
    return CallbackList([judging, EveryNTimesteps(7, Users(every=every)), CallbackList([Users()]), Ours()])


def test_callbacks_continue_and_keep_what_the_script_says() -> None:
    trained = callbacks()
    model = A2C("MlpPolicy", make_vec_env("CartPole-v1", 1, seed=2), n_steps=5, seed=2, device="cpu")
    model.learn(0, callback=trained)
    note_beginning(trained, Ours)
    model.learn(50, callback=trained, reset_num_timesteps=False)
    states = pickle.loads(pickle.dumps(callback_states(trained, model, Ours)))
    assert {"EvalCallback", "EveryNTimesteps", "Users", "Users 2", "CallbackList 2"} <= states.keys()
    assert "Ours" not in states
    assert not {"policy", "shown", "every", "seen", "model", "parent"} & states["Users"]["attributes"].keys()

    later = callbacks(every=99)
    note_beginning(later, Ours)
    restore_callbacks(later, states, Ours)
    judging, then = later.callbacks[0], trained.callbacks[0]
    assert judging.best_mean_reward == then.best_mean_reward > 0
    assert (judging.n_calls, judging.last_mean_reward) == (then.n_calls, then.last_mean_reward)
    assert judging.callback.no_improvement_evals == then.callback.no_improvement_evals
    first = judging.eval_env.reset().tolist()
    assert first == then.eval_env.reset().tolist()
    every = later.callbacks[1]
    assert every.last_time_trigger == trained.callbacks[1].last_time_trigger > 0
    assert (every.callback.best, every.callback.every) == (trained.callbacks[1].callback.best, 99)
    assert later.callbacks[2].callbacks[0].steps == trained.callbacks[2].callbacks[0].steps

    again = pickle.loads(pickle.dumps(callback_states(later, model, Ours)))
    assert again["Users"]["attributes"]["best"] == states["Users"]["attributes"]["best"]
