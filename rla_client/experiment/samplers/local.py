"""The sampler that works in the training process itself.

Worker 0 uses the given environment, further ones use copies; all use the policy itself, so an
update of it costs nothing. Random numbers of the policy come from the process's generators.
"""

from __future__ import annotations

from typing import Any

from rla_client.experiment.environments import copy_env, pack_env, unpack_env
from rla_client.experiment.episode_batch import EpisodeBatch
from rla_client.experiment.samplers.sampler import Sampler, collect
from rla_client.experiment.samplers.workers import Worker


class LocalSampler(Sampler):
    """Samples in this process, one worker after the other."""

    def start_worker(self) -> None:
        """Make the workers."""
        self._workers: list[Worker] = []
        for number in range(self.factory.n_workers):
            worker = self.factory(number)
            worker.update_agent(self.agent)
            worker.update_env(self.env if number == 0 else copy_env(self.env))
            self._workers.append(worker)

    def obtain_samples(
        self,
        itr: int,
        num_samples: int,
        agent_update: object = None,
        env_update: object = None,
    ) -> EpisodeBatch:
        """Sample at least `num_samples` steps; see Sampler. Errors of the environment come as they are."""
        share = self.factory.quota(num_samples)
        for number, worker in enumerate(self._workers):
            if agent_update is not None:
                worker.update_agent(agent_update)
            if env_update is not None:
                worker.update_env(env_update if number == 0 else copy_env(env_update))
            worker.start_epoch(itr)
        return EpisodeBatch.concatenate([collect(worker, share) for worker in self._workers])

    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed."""
        return [pack_env(worker.env) for worker in self._workers]

    def restore_env_states(self, states: list[bytes]) -> None:
        """Give the workers their environments back; worker 0 keeps the one it shares with the runner."""
        for worker, state in list(zip(self._workers, states, strict=False))[1:]:
            worker.update_env(unpack_env(state))

    def shutdown_worker(self) -> None:
        """Let go of the copies. The environment itself belongs to who made it."""
        for worker in self._workers[1:]:
            worker.shutdown()
        self._workers = []

    def __getstate__(self) -> dict[str, Any]:
        return {"factory": self.factory, "agent": self.agent, "env": self.env}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.start_worker()
