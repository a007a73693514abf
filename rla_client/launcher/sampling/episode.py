"""Running episode of an environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.sampling.env import Env, reset_env, step_env
from rla_client.launcher.sampling.env_spec import StepType
from rla_client.launcher.sampling.episode_batch import EpisodeBatch, stack, stack_infos


class Episode:
    """A running episode; `take` returns the steps since the last `take`."""

    def __init__(self, env: Env, seed: int | None, limit: int | None) -> None:
        self._env = env
        self._limit = limit
        self._steps = 0
        self.ended = False
        self.observation, self._reset_info = reset_env(env, seed)
        self._taken: list[tuple[Any, ...]] = []  # see `step`

    @property
    def pending(self) -> int:
        """Number of steps that `take` would return."""
        return len(self._taken)

    def step(self, action: object, agent_info: dict[str, Any]) -> None:
        """Act once."""
        following, reward, terminated, truncated, info = step_env(self._env, action)
        self._steps += 1
        kind = StepType.FIRST if self._steps == 1 else StepType.MID
        if terminated:
            kind = StepType.TERMINAL
        elif truncated or self._steps == self._limit:
            kind = StepType.TIMEOUT
        self._taken.append((self.observation, action, reward, kind, info, agent_info))
        self.observation = following
        self.ended = kind >= StepType.TERMINAL

    def take(self) -> EpisodeBatch:
        """The steps since the last call, as a batch of one.

        Raises:
            ArgumentError: there are none.
        """
        if not self._taken:
            raise ArgumentError("an episode of a batch has at least one step")
        observations, actions, rewards, types, env_infos, agent_infos = zip(*self._taken, strict=True)
        batch = EpisodeBatch(
            stack(observations),
            stack([self.observation]),
            stack(actions),
            np.asarray(rewards, dtype=np.float64),
            np.asarray(types, dtype=np.int8),
            np.asarray([len(rewards)], dtype=np.int64),
            stack_infos(env_infos),
            stack_infos(agent_infos),
            stack_infos([self._reset_info]),
        )
        self._taken = []
        return batch
