"""Base of samplers.

A sampler has workers that run a policy in environments. Each worker samples at least its share of the
requested steps, and the batches are joined in the order of the workers: the samples depend on seed, policy
and number of workers, not on the workers' speed. So processes and actors with the same seeds give the same
samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from rla_client.launcher.sampling.env_spec import EnvSpec
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.worker_factory import WorkerFactory

EXACT_EPOCHS = 1 << 31  # obtain_exact_episodes has no iteration; its seeds come after all others


class Sampler(ABC):
    """Runs policies in environments.

    Args:
        agents: the policy, or a list of one per worker.
        envs: the environment, copied for further workers; or a list of one per worker.
        worker_factory: makes the workers; default: one with the keyword arguments below.
        **description: arguments of WorkerFactory (seed, n_workers, max_episode_length,
            worker_class, worker_args).
    """

    _exact_calls = 0

    def __init__(
        self,
        agents: object,
        envs: object,
        *,
        worker_factory: WorkerFactory | None = None,
        **description: Any,  # noqa: ANN401
    ) -> None:
        if worker_factory is None and description.get("n_workers") is None:
            description["n_workers"] = self.default_workers()
        self.factory = worker_factory or WorkerFactory(**description)
        self.agent: Any = agents
        self.env: Any = envs
        self.start_worker()

    @classmethod
    def from_worker_factory(
        cls,
        worker_factory: WorkerFactory,
        agents: object,
        envs: object,
        **sampler_args: object,
    ) -> Sampler:
        """Make a sampler, with garage's signature."""
        return cls(agents, envs, worker_factory=worker_factory, **sampler_args)

    @classmethod
    def default_workers(cls) -> int:
        """Default number of workers."""
        return 1

    @abstractmethod
    def start_worker(self) -> None:
        """Make the workers."""

    def obtain_samples(
        self,
        itr: int,
        num_samples: int,
        agent_update: object = None,
        env_update: object = None,
    ) -> EpisodeBatch:
        """Sample at least `num_samples` steps.

        Args:
            itr: the iteration; seeds are derived from it, so the same number gives the same samples.
            num_samples: minimum number of steps of all workers.
            agent_update: the policy to use from now on, or parameters from its `get_param_values()`, or a
                list of one per worker; None keeps the current policy.
            env_update: the environment to use from now on, or a function that makes it from the former
                one, or a list of one per worker; None keeps the current environment.

        Raises:
            WorkerError: a worker's environment, policy or process failed MAX_ATTEMPTS times in a row.
                LocalSampler raises the environment's own errors.
        """
        share = self.factory.quota(num_samples)
        return self._sample({"itr": itr, "share": share}, agent_update, env_update)

    def obtain_exact_episodes(
        self, n_eps_per_worker: int, agent_update: object = None, env_update: object = None
    ) -> EpisodeBatch:
        """Sample `n_eps_per_worker` rollouts with each worker, in the order of the workers.

        Raises:
            WorkerError: as in `obtain_samples`.
        """
        self._exact_calls += 1
        what = {"itr": EXACT_EPOCHS + self._exact_calls, "rollouts": n_eps_per_worker}
        return self._sample(what, agent_update, env_update)

    def obtain_exact_trajectories(
        self, n_traj_per_worker: int, agent_update: object = None, env_update: object = None
    ) -> EpisodeBatch:
        """Older name of obtain_exact_episodes."""
        return self.obtain_exact_episodes(n_traj_per_worker, agent_update, env_update)

    @abstractmethod
    def _sample(self, what: dict[str, Any], agent_update: object, env_update: object) -> EpisodeBatch:
        """Call `roll_out(worker, what)` for every worker, in epoch `what["itr"]`."""

    def _with_spec(self, batches: list[EpisodeBatch], env: object) -> EpisodeBatch:
        """Join the workers' batches, with the spec of `env`, which worker processes do not send."""
        spec = EnvSpec.of(env, self.factory.max_episode_length)
        return replace(EpisodeBatch.concatenate(batches), env_spec=spec)

    @abstractmethod
    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed by `pack_env`, with the statistics of its wrappers."""

    @abstractmethod
    def restore_env_states(self, states: list[bytes]) -> None:
        """Restore each worker's environment from `env_states`."""

    @abstractmethod
    def shutdown_worker(self) -> None:
        """End the workers. Does nothing the second time."""

    @abstractmethod
    def _forget_workers(self) -> None:
        """Set the state before the start of workers; the first request starts them."""

    def __getstate__(self) -> dict[str, Any]:
        kept = {"factory": self.factory, "agent": self.agent, "env": self.env}
        return {**kept, "_exact_calls": self._exact_calls}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_workers()  # reading a snapshot must not start workers
