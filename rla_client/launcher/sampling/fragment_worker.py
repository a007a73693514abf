"""Worker of several environments side by side.

A policy's `get_actions(observations)` is used if it has one; its `reset(mask)` is called with the
environments in which an episode begins.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.deterministic import derive_seed
from rla_client.launcher.sampling.env import seed_spaces, updated_env
from rla_client.launcher.sampling.env_pickle import copy_env
from rla_client.launcher.sampling.episode import Episode
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.policy_calls import choose_actions, reset_agent
from rla_client.launcher.sampling.worker import Worker


class FragmentWorker(Worker):
    """Steps several copies of the environment side by side and returns fragments of episodes.

    Args:
        seed: as in Worker.
        worker_number: as in Worker.
        max_episode_length: as in Worker.
        max_path_length: as in Worker.
        n_envs: number of copies.
        timesteps_per_call: steps of each copy in one rollout.
    """

    def __init__(
        self,
        *,
        seed: int,
        worker_number: int,
        max_episode_length: int | None = None,
        max_path_length: int | None = None,
        n_envs: int = 8,
        timesteps_per_call: int = 1,
    ) -> None:
        super().__init__(
            seed=seed,
            worker_number=worker_number,
            max_episode_length=max_episode_length,
            max_path_length=max_path_length,
        )
        if n_envs < 1 or timesteps_per_call < 1:
            raise ArgumentError("n_envs and timesteps_per_call are at least 1")
        self.n_envs = n_envs
        self.timesteps_per_call = timesteps_per_call
        self._envs: list[Any] = []
        self._episodes: list[Episode] = []

    def update_env(self, env: object) -> None:
        """Use `env` and copies of it, or a list of one environment per copy."""
        if isinstance(env, list):
            if len(env) != self.n_envs:
                raise ArgumentError(f"a list for n_envs={self.n_envs} has {len(env)} environments")
            olds = self._envs or [None] * self.n_envs
            self._envs = [updated_env(old, new) for old, new in zip(olds, env, strict=True)]
            self.env = self._envs[0]
        else:
            super().update_env(env)
            self._envs = [self.env, *(copy_env(self.env) for _ in range(self.n_envs - 1))]
        self._episodes = []

    def start_epoch(self, epoch: int, attempt: int = 0) -> None:
        """Begin an epoch: reset all copies, each with its own seed."""
        super().start_epoch(epoch, attempt)
        assert self.reset_seed is not None
        self._episodes = []
        for number, env in enumerate(self._envs):
            seed = derive_seed(self.reset_seed, number)
            seed_spaces(env, seed)
            self._episodes.append(Episode(env, seed, self.max_episode_length))
        reset_agent(self.agent, [True] * self.n_envs)

    def rollout(self) -> EpisodeBatch:
        """Step every copy `timesteps_per_call` times; ended episodes begin again."""
        parts: list[EpisodeBatch] = []
        for _ in range(self.timesteps_per_call):
            parts.extend(self._step_all())
        parts.extend(episode.take() for episode in self._episodes if episode.pending)
        return EpisodeBatch.concatenate(parts)

    def _step_all(self) -> list[EpisodeBatch]:
        """Step every copy once; returns the episodes that ended, after new ones have begun."""
        actions = choose_actions(self.agent, [episode.observation for episode in self._episodes])
        for episode, action in zip(self._episodes, actions, strict=True):
            episode.step(*action)
        over = [episode.ended for episode in self._episodes]
        parts = [episode.take() for episode in self._episodes if episode.ended]
        if parts:
            for number in np.flatnonzero(over):
                self._episodes[number] = Episode(self._envs[number], None, self.max_episode_length)
            reset_agent(self.agent, over)
        return parts

    def shutdown(self) -> None:
        """Close all copies."""
        for env in self._envs:
            env.close()


class VecWorker(FragmentWorker):
    """Steps several copies of the environment side by side and returns whole episodes, as in garage.

    Args:
        seed: as in Worker.
        worker_number: as in Worker.
        max_episode_length: as in Worker.
        max_path_length: as in Worker.
        n_envs: how many copies.
    """

    def __init__(
        self,
        *,
        seed: int,
        worker_number: int,
        max_episode_length: int | None = None,
        max_path_length: int | None = None,
        n_envs: int = 8,
    ) -> None:
        super().__init__(
            seed=seed,
            worker_number=worker_number,
            max_episode_length=max_episode_length,
            max_path_length=max_path_length,
            n_envs=n_envs,
        )

    def start_epoch(self, epoch: int, attempt: int = 0) -> None:
        """See FragmentWorker."""
        super().start_epoch(epoch, attempt)
        self._over: deque[EpisodeBatch] = deque()

    def rollout(self) -> EpisodeBatch:
        """Return the next whole episode; step all copies until there is one."""
        while not self._over:
            self._over.extend(self._step_all())
        return self._over.popleft()
