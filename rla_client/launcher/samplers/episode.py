"""One episode in the making: steps collected one by one, handed over as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rla_client.launcher.episode_batch import EpisodeBatch, StepType, stack, stack_infos
from rla_client.launcher.samplers.stepping import Env, reset_env, step_env


class Episode:
    """An episode in the making; `take` hands over the steps since the last `take`."""

    def __init__(self, env: Env, seed: int | None, limit: int | None) -> None:
        self._env = env
        self._limit = limit
        self._steps = 0
        self.ended = False
        self.observation, self._reset_info = reset_env(env, seed)
        self._clear()

    def _clear(self) -> None:
        self._observations: list[Any] = []
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._types: list[int] = []
        self._env_infos: list[dict[str, Any]] = []
        self._agent_infos: list[dict[str, Any]] = []

    @property
    def pending(self) -> int:
        """Steps that `take` would hand over."""
        return len(self._rewards)

    def step(self, action: object, agent_info: dict[str, Any]) -> None:
        """Act once."""
        following, reward, terminated, truncated, info = step_env(self._env, action)
        self._steps += 1
        kind = StepType.FIRST if self._steps == 1 else StepType.MID
        if terminated:
            kind = StepType.TERMINAL
        elif truncated or self._steps == self._limit:
            kind = StepType.TIMEOUT
        self._observations.append(self.observation)
        self._actions.append(action)
        self._rewards.append(reward)
        self._types.append(kind)
        self._env_infos.append(info)
        self._agent_infos.append(agent_info)
        self.observation = following
        self.ended = kind >= StepType.TERMINAL

    def take(self) -> EpisodeBatch:
        """The steps since the last call, as a batch of one."""
        batch = EpisodeBatch(
            stack(self._observations),
            stack([self.observation]),
            stack(self._actions),
            np.asarray(self._rewards, dtype=np.float64),
            np.asarray(self._types, dtype=np.int8),
            np.asarray([len(self._rewards)], dtype=np.int64),
            stack_infos(self._env_infos),
            stack_infos(self._agent_infos),
            stack_infos([self._reset_info]),
        )
        self._clear()
        return batch
