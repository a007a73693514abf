"""Workers: one environment (or a few) and a policy, in whatever process they were put.

A worker is told when an epoch begins. It then reseeds from (seed, worker, epoch) and resets its
environments, so what an epoch samples does not depend on earlier ones having run in the same
process. That, and the snapshot's generator states, is why a resumed run repeats the uninterrupted one.

The policy is whatever has `get_action(observation)` (giving the action, or a pair of action and
a dict of infos), or can be called so; `reset()` is called at the start of an episode if it is there.
`FragmentWorker` uses `get_actions(observations)` where there is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from rla_client.errors import ArgumentError
from rla_client.experiment.deterministic import derive_seed
from rla_client.experiment.episode_batch import EpisodeBatch, StepType, stack, stack_infos


class Worker(ABC):
    """Runs a policy in an environment.

    Args:
        seed: base seed of the sampler.
        worker_number: which of the sampler's workers this is, from 0.
        max_episode_length: steps after which an episode is cut off; None: the environment says.
    """

    def __init__(self, *, seed: int, worker_number: int, max_episode_length: int | None = None) -> None:
        self.seed = seed
        self.worker_number = worker_number
        self.max_episode_length = max_episode_length
        self.agent: Any = None
        self.env: Any = None
        self.reset_seed: int | None = None

    def update_agent(self, agent: object) -> None:
        """Use this policy from now on."""
        self.agent = agent

    def update_env(self, env: object) -> None:
        """Use this environment from now on."""
        self.env = env

    def start_epoch(self, epoch: int, attempt: int = 0) -> None:
        """Begin epoch `epoch`: derive its seed; the next reset of each environment takes it.

        Args:
            epoch: counts from 0.
            attempt: 1, 2, … when earlier attempts at this epoch failed.
        """
        keys = (self.worker_number, epoch) if attempt == 0 else (self.worker_number, epoch, attempt)
        self.reset_seed = derive_seed(self.seed, *keys)

    @abstractmethod
    def rollout(self) -> EpisodeBatch:
        """Run the policy for one helping: an episode, or what the class says."""

    def shutdown(self) -> None:
        """Close the environment."""
        if self.env is not None:
            self.env.close()


class DefaultWorker(Worker):
    """Gives one whole episode per rollout."""

    def rollout(self) -> EpisodeBatch:
        """Run one episode to its end or to `max_episode_length`."""
        episode = Episode(self.env, self._take_seed(), self.max_episode_length)
        reset_agent(self.agent)
        while not episode.ended:
            episode.step(*choose_action(self.agent, episode.observation))
        return episode.take()

    def _take_seed(self) -> int | None:
        seed, self.reset_seed = self.reset_seed, None
        if seed is not None:
            seed_spaces(self.env, seed)
        return seed


class FragmentWorker(Worker):
    """Steps several copies of the environment side by side and gives fragments of episodes.

    Args:
        seed: as in Worker.
        worker_number: as in Worker.
        max_episode_length: as in Worker.
        n_envs: how many copies.
        timesteps_per_call: steps of each copy in one rollout.
    """

    def __init__(
        self,
        *,
        seed: int,
        worker_number: int,
        max_episode_length: int | None = None,
        n_envs: int = 8,
        timesteps_per_call: int = 1,
    ) -> None:
        super().__init__(seed=seed, worker_number=worker_number, max_episode_length=max_episode_length)
        if n_envs < 1 or timesteps_per_call < 1:
            raise ArgumentError("n_envs and timesteps_per_call are at least 1")
        self.n_envs = n_envs
        self.timesteps_per_call = timesteps_per_call
        self._envs: list[Any] = []
        self._episodes: list[Episode] = []

    def update_env(self, env: object) -> None:
        """Use `env` and copies of it."""
        from rla_client.experiment.environments import copy_env  # noqa: PLC0415 - cloudpickle, only here

        super().update_env(env)
        self._envs = [env, *(copy_env(env) for _ in range(self.n_envs - 1))]
        self._episodes = []

    def start_epoch(self, epoch: int, attempt: int = 0) -> None:
        """Begin an epoch: all copies are reset, with seeds of their own."""
        super().start_epoch(epoch, attempt)
        assert self.reset_seed is not None
        self._episodes = []
        for number, env in enumerate(self._envs):
            seed = derive_seed(self.reset_seed, number)
            seed_spaces(env, seed)
            self._episodes.append(Episode(env, seed, self.max_episode_length))
        reset_agent(self.agent, self.n_envs)

    def rollout(self) -> EpisodeBatch:
        """Step every copy `timesteps_per_call` times; ended episodes begin again."""
        parts: list[EpisodeBatch] = []
        for _ in range(self.timesteps_per_call):
            actions = choose_actions(self.agent, [episode.observation for episode in self._episodes])
            for number, episode in enumerate(self._episodes):
                episode.step(*actions[number])
                if episode.ended:
                    parts.append(episode.take())
                    self._episodes[number] = Episode(self._envs[number], None, self.max_episode_length)
        parts.extend(episode.take() for episode in self._episodes if episode.pending)
        return EpisodeBatch.concatenate(parts)

    def shutdown(self) -> None:
        """Close all copies."""
        for env in self._envs:
            env.close()


class Episode:
    """An episode in the making; `take` hands over the steps since the last `take`."""

    def __init__(self, env: Any, seed: int | None, limit: int | None) -> None:  # noqa: ANN401
        self._env = env
        self._limit = limit
        self._steps = 0
        self.ended = False
        self.observation, self._reset_info = env.reset() if seed is None else env.reset(seed=seed)
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

    def step(self, action: Any, agent_info: dict[str, Any]) -> None:  # noqa: ANN401
        """Act once."""
        following, reward, terminated, truncated, info = self._env.step(action)
        self._steps += 1
        kind = StepType.FIRST if self._steps == 1 else StepType.MID
        if terminated:
            kind = StepType.TERMINAL
        elif truncated or self._steps == self._limit:
            kind = StepType.TIMEOUT
        self._observations.append(self.observation)
        self._actions.append(action)
        self._rewards.append(float(reward))
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


def reset_agent(agent: Any, n_envs: int = 1) -> None:  # noqa: ANN401
    """Tell a policy that keeps a state that episodes begin."""
    reset = getattr(agent, "reset", None)
    if reset is None:
        return
    if n_envs == 1:
        reset()
    else:
        reset(np.ones(n_envs, dtype=bool))


def choose_action(agent: Any, observation: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
    """Ask a policy for one action and its infos."""
    choose: Callable[[Any], Any] = getattr(agent, "get_action", agent)
    answer = choose(observation)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):  # noqa: PLR2004 - a pair
        return answer
    return answer, {}


def choose_actions(agent: Any, observations: list[Any]) -> list[tuple[Any, dict[str, Any]]]:  # noqa: ANN401
    """Ask a policy for an action per observation, in one call where it can."""
    choose = getattr(agent, "get_actions", None)
    if choose is None:
        return [choose_action(agent, observation) for observation in observations]
    answer = choose(stack(observations))
    infos: dict[str, Any] = {}
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):  # noqa: PLR2004
        answer, infos = answer
    return [
        (action, {key: values[number] for key, values in infos.items()})
        for number, action in enumerate(answer)
    ]


def seed_spaces(env: Any, seed: int) -> None:  # noqa: ANN401
    """Seed the spaces, from which exploring policies draw actions."""
    for name in ("action_space", "observation_space"):
        space = getattr(env, name, None)
        if space is not None and hasattr(space, "seed"):
            space.seed(seed)
