"""What runners expect of a sampler; `local` and `multiprocessing` are the two there are.

Each worker gives at least its share of the asked-for steps, and the batches are put together in
the order of the workers: what comes out depends on seed, policy and number of workers, never on
which worker was faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from rla_client.experiment.episode_batch import EpisodeBatch
from rla_client.experiment.samplers.factory import WorkerFactory


class Sampler(ABC):
    """Runs policies in environments.

    Args:
        agents: the policy.
        envs: the environment; further workers get copies.
        worker_factory: makes the workers. Without one the keywords below describe it.
        max_episode_length: as in WorkerFactory.
        seed: as in WorkerFactory.
        n_workers: as in WorkerFactory.
        worker_class: as in WorkerFactory.
        worker_args: as in WorkerFactory.
    """

    def __init__(
        self,
        agents: object,
        envs: object,
        *,
        worker_factory: WorkerFactory | None = None,
        **description: Any,  # noqa: ANN401
    ) -> None:
        self.factory = worker_factory or WorkerFactory(**{"seed": 0, **description})
        self.agent: Any = agents
        self.env: Any = envs
        self.start_worker()

    @classmethod
    def from_worker_factory(
        cls,
        worker_factory: WorkerFactory,
        agents: object,
        envs: object,
        **sampler_args: Any,  # noqa: ANN401
    ) -> Sampler:
        """Garage's way to make one."""
        return cls(agents, envs, worker_factory=worker_factory, **sampler_args)

    @abstractmethod
    def start_worker(self) -> None:
        """Make the workers."""

    @abstractmethod
    def obtain_samples(
        self,
        itr: int,
        num_samples: int,
        agent_update: object = None,
        env_update: object = None,
    ) -> EpisodeBatch:
        """Sample at least `num_samples` steps.

        Args:
            itr: the iteration; seeds are derived from it, so the same number twice samples the same.
            num_samples: steps in all.
            agent_update: the policy to use from now on; None keeps the one there is.
            env_update: likewise the environment.

        Raises:
            WorkerError: a worker failed again and again.
        """

    @abstractmethod
    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed (environments.pack_env): wrappers keep statistics."""

    @abstractmethod
    def restore_env_states(self, states: list[bytes]) -> None:
        """Give each worker its environment of `env_states`."""

    @abstractmethod
    def shutdown_worker(self) -> None:
        """End the workers. Does nothing the second time."""


def collect(worker: Any, share: int) -> EpisodeBatch:  # noqa: ANN401 - Worker, also of the user's own
    """Roll `worker` out until it gave at least `share` steps."""
    parts: list[EpisodeBatch] = []
    steps = 0
    while steps < share:
        parts.append(worker.rollout())
        steps += parts[-1].n_steps
    return EpisodeBatch.concatenate(parts)
