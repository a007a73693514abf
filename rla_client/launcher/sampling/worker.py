"""Worker of one environment.

At the beginning of an epoch it reseeds from (seed, worker, epoch) and resets its environments, so the
samples of an epoch do not depend on earlier epochs in the same process. Therefore, with the generator
states of the snapshot, a resumed run repeats the uninterrupted one.

The policy has `get_action(observation)`, or is called with the observation; both return the action, or a
pair of action and dict of infos. Its `reset()`, if any, is called at the start of an episode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from rla_client.launcher.deterministic import derive_seed
from rla_client.launcher.sampling.env import seed_spaces, updated_env
from rla_client.launcher.sampling.episode import Episode
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.policy_calls import choose_action, is_parameters, reset_agent


class Worker(ABC):
    """Runs a policy in an environment.

    Args:
        seed: base seed of the sampler.
        worker_number: number of this worker in the sampler, from 0.
        max_episode_length: steps after which an episode is cut off; None: the environment's own limit.
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
        """Initialize a subclass; called once by the constructor."""

    def update_agent(self, agent: object) -> None:
        """Use another policy from now on, or other parameters of the current one.

        Args:
            agent: a policy, or parameters from its `get_param_values()` (a dict, tuple or array).
        """
        if is_parameters(agent):
            self.agent.set_param_values(agent)
        elif agent is not None:
            self.agent = agent

    def update_env(self, env: object) -> None:
        """Use another environment from now on, or the result of a function of the current one."""
        self.env = updated_env(self.env, env)

    def start_epoch(self, epoch: int, attempt: int = 0) -> None:
        """Begin epoch `epoch`: derive the seed for the next reset of each environment.

        Args:
            epoch: number of the epoch, from 0.
            attempt: 1, 2, … after failed attempts at this epoch.
        """
        keys = (self.worker_number, epoch) if attempt == 0 else (self.worker_number, epoch, attempt)
        self.reset_seed = derive_seed(self.seed, *keys)

    @abstractmethod
    def rollout(self) -> EpisodeBatch:
        """Run the policy for one episode, or for another unit of a subclass."""

    def shutdown(self) -> None:
        """Close the environment."""
        if self.env is not None:
            self.env.close()


class DefaultWorker(Worker):
    """Returns one whole episode per rollout, in three steps that subclasses may override.

    `start_rollout`, `step_rollout` and `collect_rollout` are their older names.
    """

    _episode: Episode

    def start_episode(self) -> None:
        """Reset environment and policy."""
        self._episode = Episode(self.env, self._take_seed(), self.max_episode_length)
        reset_agent(self.agent)

    def step_episode(self) -> bool:
        """Act once; returns whether the episode has ended."""
        self._episode.step(*choose_action(self.agent, self._episode.observation))
        return self._episode.ended

    def collect_episode(self) -> EpisodeBatch:
        """Return the steps of the episode, as a batch of one."""
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
