"""Base of samplers with worker processes or actors.

Policies and environments are sent to the workers as cloudpickle bytes. If a worker's environment raises an
error, its share is sampled again in a new copy of the environment with another seed, in at most
`MAX_ATTEMPTS` attempts. A worker that dies is replaced, and its share is sampled again likewise.
"""

from __future__ import annotations

import logging
import weakref
from abc import abstractmethod
from typing import Any

from rla_client.contract.errors import WorkerError
from rla_client.launcher.sampling.env import updated_env
from rla_client.launcher.sampling.env_pickle import pack_env
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.policy_calls import is_parameters
from rla_client.launcher.sampling.sampler import Sampler
from rla_client.launcher.sampling.worker_factory import physical_cores
from rla_client.launcher.snapshot.snapshot_pickle import pack_agents

MAX_ATTEMPTS = 3  # one crash may be chance; three in a row with different seeds are the environment
_log = logging.getLogger("rla_client")


class RemoteSampler(Sampler):
    """A sampler with worker processes or actors."""

    _processes: list[Any]
    _finalizer: weakref.finalize[..., RemoteSampler]

    @classmethod
    def default_workers(cls) -> int:
        """One per physical core."""
        return physical_cores()

    def _pack_all(self) -> None:
        self._envs = [pack_env(env) for env in self.factory.spread(self.env)]
        self._agents = pack_agents(self.factory.spread(self.agent))

    def _sample(self, what: dict[str, Any], agent_update: object, env_update: object) -> EpisodeBatch:
        count = self.factory.n_workers
        if not self._processes:
            self.start_worker()
        agents: list[bytes | None] = [None] * count
        envs: list[bytes | None] = [None] * count
        if env_update is not None:
            envs[:] = [pack_env(env) for env in self.factory.spread(env_update)]
            self._keep_env(env_update)
        if agent_update is not None:
            agents[:] = self._take_agent(self.factory.spread(agent_update))
        requests = [{**what, "agent": agents[index], "env": envs[index]} for index in range(count)]
        batches: list[EpisodeBatch] = self._ask_all("sample", requests)
        return self._with_spec(batches, self.env[0] if isinstance(self.env, list) else self.env)

    def _keep_env(self, update: object) -> None:
        """Keep the updated environments for workers that start again."""
        olds, news = self.factory.spread(self.env), self.factory.spread(update)
        kept = [updated_env(old, new) for old, new in zip(olds, news, strict=True)]
        self.env = kept if isinstance(self.env, list) or isinstance(update, list) else kept[0]
        self._envs = [pack_env(env) for env in kept]

    def _take_agent(self, updates: list[Any]) -> list[bytes]:
        if not any(is_parameters(update) for update in updates):
            self.agent = updates if len(set(map(id, updates))) > 1 else updates[0]
            self._agents = pack_agents(updates)
            return self._agents
        for agent, update in zip(self.factory.spread(self.agent), updates, strict=True):
            agent.set_param_values(update)
        self._agents = []  # packed again when a worker starts again
        return pack_agents(updates)

    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed."""
        states: list[bytes] = self._ask_all("env_state", [{} for _ in self._processes])
        return states

    def restore_env_states(self, states: list[bytes]) -> None:
        """Restore the workers' environments."""
        if not self._processes:
            self.start_worker()
        padded = [*states, *self._envs[len(states) :]]
        self._ask_all("set_env", [{"env": padded[index]} for index in range(len(self._processes))])

    def _forget_workers(self) -> None:
        self._processes = []

    def shutdown_worker(self) -> None:
        """End and reap the processes. Does nothing the second time."""
        if self._processes:
            self._finalizer()
            self._processes = []

    @abstractmethod
    def _ask_all(self, what: str, requests: list[dict[str, Any]]) -> list[Any]:
        """Ask every worker and wait for the answers, in the order of the workers."""

    def _setup_of(self, index: int) -> dict[str, Any]:
        """Setup request for a new worker."""
        return {"factory": self.factory, "number": index, **self._fresh(index)}

    def _fresh(self, index: int) -> dict[str, bytes]:
        if not self._agents:
            self._agents = pack_agents(self.factory.spread(self.agent))
        return {"env": self._envs[index], "agent": self._agents[index]}

    def _again(
        self, index: int, request: dict[str, Any], attempts: list[int], problem: str
    ) -> dict[str, Any]:
        """The failed request, for a worker that starts again.

        Raises:
            WorkerError: the request has failed MAX_ATTEMPTS times.
        """
        attempts[index] += 1
        attempt = attempts[index]
        if attempt >= MAX_ATTEMPTS:
            message = f"sampler worker {index} failed {attempt} times in a row; the last time:\n{problem}"
            raise WorkerError(message)
        _log.warning("sampler worker %d failed and samples again in a fresh environment: %s", index, problem)
        return {**request, "attempt": attempt, **self._fresh(index)}
