"""Workers: one environment (or a few) and a policy, in whatever process they were put.

A worker is told when an epoch begins. It then reseeds from (seed, worker, epoch) and resets its
environments, so what an epoch samples does not depend on earlier ones having run in the same
process. That, and the snapshot's generator states, is why a resumed run repeats the uninterrupted one.

The policy is whatever has `get_action(observation)` (giving the action, or a pair of action and
a dict of infos), or can be called so; `reset()` is called at the start of an episode if it is there.
`FragmentWorker` and `VecWorker` use `get_actions(observations)` where there is one; `reset(mask)` tells such
a policy in which of its environments an episode begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.deterministic import derive_seed
from rla_client.launcher.environments import Env, copy_env, reset_env, step_env
from rla_client.launcher.episode_batch import EpisodeBatch, StepType, stack, stack_infos


class Worker(ABC):
    """Runs a policy in an environment.

    Args:
        seed: base seed of the sampler.
        worker_number: which of the sampler's workers this is, from 0.
        max_episode_length: steps after which an episode is cut off; None: the environment says.
        max_path_length: older name of max_episode_length.
    """

    def __init__(
        self,
        *,
        seed: int,
        worker_number: int,
        max_episode_length: int | None = None,
        max_path_length: int | None = None,
    ) -> None:
        self.seed = seed
        self.worker_number = worker_number
        self.max_episode_length = max_path_length if max_episode_length is None else max_episode_length
        self.agent: Any = None
        self.env: Any = None
        self.reset_seed: int | None = None
        self.worker_init()

    def worker_init(self) -> None:  # noqa: B027 - a hook
        """Called once when the worker was made; for subclasses."""

    def update_agent(self, agent: object) -> None:
        """Use this policy from now on, or these parameters in the one there is.

        Args:
            agent: a policy; or what its `get_param_values()` gave (a dict, tuple or array).
        """
        if is_parameters(agent):
            self.agent.set_param_values(agent)
        elif agent is not None:
            self.agent = agent

    def update_env(self, env: object) -> None:
        """Use this environment from now on, or what a function makes of the one there is."""
        self.env = updated_env(self.env, env)

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
    """Gives one whole episode per rollout, in three parts that subclasses may change.

    `start_rollout`, `step_rollout` and `collect_rollout` are their older names.
    """

    _episode: Episode

    def start_episode(self) -> None:
        """Reset environment and policy."""
        self._episode = Episode(self.env, self._take_seed(), self.max_episode_length)
        reset_agent(self.agent)

    def step_episode(self) -> bool:
        """Act once; True when the episode has ended."""
        self._episode.step(*choose_action(self.agent, self._episode.observation))
        return self._episode.ended

    def collect_episode(self) -> EpisodeBatch:
        """The steps of the episode, as a batch of one."""
        return self._episode.take()

    def start_rollout(self) -> None:
        """Older name of start_episode."""
        self.start_episode()

    def step_rollout(self) -> bool:
        """Older name of step_episode."""
        return self.step_episode()

    def collect_rollout(self) -> EpisodeBatch:
        """Older name of collect_episode."""
        return self.collect_episode()

    def rollout(self) -> EpisodeBatch:
        """Run one episode to its end or to `max_episode_length`."""
        self.start_rollout()
        while not self.step_rollout():
            pass
        return self.collect_rollout()

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
        max_path_length: as in Worker.
        n_envs: how many copies.
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
        """Use `env` and copies of it, or each of a list of environments."""
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
        """Begin an epoch: all copies are reset, with seeds of their own."""
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
        """Step every copy once; the episodes that ended, for which others have begun."""
        actions = choose_actions(self.agent, [episode.observation for episode in self._episodes])
        for episode, action in zip(self._episodes, actions, strict=True):
            episode.step(*action)
        over = [episode.ended for episode in self._episodes]
        parts = [episode.take() for episode in self._episodes if episode.ended]
        if parts:
            for number in range(self.n_envs):
                if over[number]:
                    self._episodes[number] = Episode(self._envs[number], None, self.max_episode_length)
            reset_agent(self.agent, over)
        return parts

    def shutdown(self) -> None:
        """Close all copies."""
        for env in self._envs:
            env.close()


class VecWorker(FragmentWorker):
    """Steps several copies of the environment side by side and gives whole episodes, as garage's does.

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
        """The next whole episode; where there is none, all copies are stepped until one has ended."""
        while not self._over:
            self._over.extend(self._step_all())
        return self._over.popleft()


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


def reset_agent(agent: object, begins: Sequence[bool] = (True,)) -> None:
    """Tell a policy that keeps a state in which of its environments an episode begins."""
    reset = getattr(agent, "reset", None)
    if not callable(reset):
        return
    if len(begins) == 1:
        reset()
    else:
        reset(np.array(begins))


def is_parameters(update: object) -> bool:
    """Whether an update of a policy is its parameters and not a policy."""
    return isinstance(update, (dict, tuple, np.ndarray))


def updated_env(env: Any, update: Any) -> object:  # noqa: ANN401
    """The environment after an update: another one, or a function that makes it from the old one."""
    if update is None:
        return env
    return update if hasattr(update, "step") else update(env)


def choose_action(agent: Any, observation: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
    """Ask a policy for one action and its infos."""
    choose: Callable[[Any], Any] = getattr(agent, "get_action", agent)
    answer = choose(observation)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):  # noqa: PLR2004 - a pair
        return answer
    return answer, {}


def choose_actions(agent: object, observations: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
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


def seed_spaces(env: object, seed: int) -> None:
    """Seed the spaces, from which exploring policies draw actions."""
    for name in ("action_space", "observation_space"):
        space = getattr(env, name, None)
        if space is not None and hasattr(space, "seed"):
            space.seed(seed)
