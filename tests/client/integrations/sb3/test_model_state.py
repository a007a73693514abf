"""What of a model is kept: also what its class leaves out of `save`; where episodes begin anew, all of it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

import torch
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.logger import Logger

from rla_client.contract.errors import ArgumentError
from rla_client.integrations.sb3.model_state import model_state, restore_state


class Dreaming(PPO):  # type: ignore[misc] # untyped
    """Leaves things out of its `save` that it needs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dream = (torch.zeros(2), torch.zeros(1))
        self.alias = self.policy.mlp_extractor

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "dream", "alias"]


def dreaming(**arguments: Any) -> Dreaming:
    model = Dreaming(
        "MlpPolicy", make_vec_env("CartPole-v1", 1, seed=1), n_steps=8, batch_size=8, **arguments
    )
    model.set_logger(Logger(None, []))
    return model


def test_what_a_class_leaves_out_of_its_save_is_kept() -> None:
    first, second = dreaming(device="cpu"), dreaming(device="cpu", n_epochs=3)
    first.learn(16)
    first.dream = (torch.ones(2), torch.ones(1))
    state = pickle.loads(pickle.dumps(model_state(first)))
    assert not {"alias", "policy", "rollout_buffer", "n_epochs", "learning_rate"} & state["attributes"].keys()
    second.learn(0)
    restore_state(second, state)
    assert [part.tolist() for part in second.dream] == [[1.0, 1.0], [1.0]]
    assert second.alias is second.policy.mlp_extractor
    assert (second.num_timesteps, second.n_epochs) == (16, 3)


def test_a_state_of_another_algorithm_is_refused() -> None:
    model = dreaming(device="cpu")
    model.learn(8)
    with pytest.raises(ArgumentError, match="of PPO, not of Dreaming"):
        restore_state(model, {**model_state(model), "algorithm": "PPO"})


@pytest.mark.parametrize("kind", ["her", "small", "plain"])
def test_where_episodes_begin_anew_the_last_ones_in_the_replay_buffer_have_ended(kind: str) -> None:
    special: dict[str, dict[str, Any]] = {
        "her": {"policy": "MultiInputPolicy", "replay_buffer_class": HerReplayBuffer},
        "small": {
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        },
        "plain": {},
    }

    def made() -> DQN:
        name: Any = (lambda: BitFlippingEnv(20, continuous=False)) if kind == "her" else "CartPole-v1"
        model = DQN(
            **{"policy": "MlpPolicy", **special[kind]},
            env=make_vec_env(name, 1, seed=1),
            learning_starts=1000,
            buffer_size=100,
            seed=1,
            device="cpu",
        )
        model.set_logger(Logger(None, []))
        return model

    first, second = made(), made()
    first.learn(8)
    state = model_state(first)
    state["environments"] = [None]
    second.learn(0)
    restore_state(second, state)
    buffer, last = second.replay_buffer, second.replay_buffer.pos - 1
    assert last == 7
    if kind == "her":
        assert buffer.ep_length[last].all()
        assert buffer.timeouts[last].all()
    elif kind == "small":
        assert buffer.dones[last].all()
    else:
        assert buffer.timeouts[last].all()
        assert not buffer.timeouts[last - 1].any()
    assert second._last_obs is not None
