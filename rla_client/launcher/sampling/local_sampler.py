"""Sampler in the training process."""

from __future__ import annotations

from typing import Any

from rla_client.launcher.sampling.env_pickle import copy_env, pack_env, unpack_env
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.rollouts import roll_out
from rla_client.launcher.sampling.sampler import Sampler
from rla_client.launcher.sampling.worker import Worker


class LocalSampler(Sampler):
    """Samples in this process, one worker after the other.

    Worker 0 uses the environment itself, further workers use copies; all use the policy itself, so updates
    of it cost nothing. The policy draws from the process's generators.
    """

    def start_worker(self) -> None:
        """Make the workers."""
        self._workers: list[Worker] = []
        agents, envs = self.factory.spread(self.agent), self._own_envs(self.env)
        for number in range(self.factory.n_workers):
            worker = self.factory(number)
            worker.update_agent(agents[number])
            worker.update_env(envs[number])
            self._workers.append(worker)

    def _own_envs(self, env: object) -> list[Any]:
        if isinstance(env, list) or not hasattr(env, "step"):
            return self.factory.spread(env)  # one for each worker, or a function that makes them
        return [env if number == 0 else copy_env(env) for number in range(self.factory.n_workers)]

    def _sample(self, what: dict[str, Any], agent_update: object, env_update: object) -> EpisodeBatch:
        if not self._workers:
            self.start_worker()
        if agent_update is not None:
            for worker, agent in zip(self._workers, self.factory.spread(agent_update), strict=True):
                worker.update_agent(agent)
        if env_update is not None:
            for worker, env in zip(self._workers, self._own_envs(env_update), strict=True):
                worker.update_env(env)
        for worker in self._workers:
            worker.start_epoch(what["itr"])
        return self._with_spec([roll_out(worker, what) for worker in self._workers], self._workers[0].env)

    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed."""
        return [pack_env(worker.env) for worker in self._workers]

    def restore_env_states(self, states: list[bytes]) -> None:
        """Restore the workers' environments; worker 0 keeps the one that it shares with the runner."""
        if not self._workers:
            self.start_worker()
        for worker, state in list(zip(self._workers, states, strict=False))[1:]:
            worker.update_env(unpack_env(state))

    def _forget_workers(self) -> None:
        self._workers = []

    def shutdown_worker(self) -> None:
        """Close the copies, but not the environment itself."""
        for worker in self._workers[1:]:
            worker.shutdown()
        self._workers = []
