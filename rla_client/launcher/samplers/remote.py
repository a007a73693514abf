"""What samplers with workers in other processes have in common: requests, and what travels with them.

Policies and environments travel as cloudpickle bytes. A worker whose environment raises reports the
traceback; its share is sampled again in a fresh copy of the environment with another seed, at most
`MAX_ATTEMPTS` times. A worker process that dies is replaced, likewise.
"""

from __future__ import annotations

import copy
import logging
import sys
from abc import abstractmethod
from typing import Any

from rla_client.contract.errors import WorkerError
from rla_client.launcher.environments import pack_env
from rla_client.launcher.episode_batch import EpisodeBatch
from rla_client.launcher.samplers.factory import physical_cores
from rla_client.launcher.samplers.sampler import Sampler
from rla_client.launcher.samplers.workers import is_parameters, updated_env
from rla_client.launcher.snapshot_codec import encode

MAX_ATTEMPTS = 3  # one crash may be chance; three in a row with different seeds are the environment

_log = logging.getLogger("rla_client")


class RemoteSampler(Sampler):
    """A sampler that asks processes."""

    _processes: list[Any]

    @classmethod
    def default_workers(cls) -> int:
        """One per physical core."""
        return physical_cores()

    def _pack_all(self) -> None:
        self._envs = [pack_env(env) for env in self.factory.spread(self.env)]
        self._agents = _pack_agents(self.factory.spread(self.agent))

    def obtain_samples(
        self,
        itr: int,
        num_samples: int,
        agent_update: object = None,
        env_update: object = None,
    ) -> EpisodeBatch:
        """Sample at least `num_samples` steps; see Sampler.

        Raises:
            WorkerError: a worker's environment, policy or process failed MAX_ATTEMPTS times in a row.
        """
        share = {"itr": itr, "share": self.factory.quota(num_samples)}
        return self._sample(share, agent_update, env_update)

    def _obtain_rollouts(
        self, itr: int, count: int, agent_update: object, env_update: object
    ) -> EpisodeBatch:
        return self._sample({"itr": itr, "rollouts": count}, agent_update, env_update)

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
        """Have what a worker that must begin afresh needs."""
        olds, news = self.factory.spread(self.env), self.factory.spread(update)
        kept = [updated_env(old, new) for old, new in zip(olds, news, strict=True)]
        self.env = kept if isinstance(self.env, list) or isinstance(update, list) else kept[0]
        self._envs = [pack_env(env) for env in kept]

    def _take_agent(self, updates: list[Any]) -> list[bytes]:
        if not any(is_parameters(update) for update in updates):
            self.agent = updates if len(set(map(id, updates))) > 1 else updates[0]
            self._agents = _pack_agents(updates)
            return self._agents
        for agent, update in zip(self.factory.spread(self.agent), updates, strict=True):
            agent.set_param_values(update)
        self._agents = []  # packed again when a worker has to begin afresh
        return _pack_agents(updates)

    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed."""
        states: list[bytes] = self._ask_all("env_state", [{} for _ in self._processes])
        return states

    def restore_env_states(self, states: list[bytes]) -> None:
        """Give the workers their environments back."""
        if not self._processes:
            self.start_worker()
        padded = [*states, *self._envs[len(states) :]]
        self._ask_all("set_env", [{"env": padded[index]} for index in range(len(self._processes))])

    def _forget_workers(self) -> None:
        self._processes = []

    @abstractmethod
    def _ask_all(self, what: str, requests: list[dict[str, Any]]) -> list[Any]:
        """Ask every worker and wait for the answers, in the order of the workers."""

    def _request_again(self, index: int, request: dict[str, Any], attempt: int) -> dict[str, Any]:
        """The same request for a worker that begins afresh."""
        fresh = {"env": self._envs[index], "agent": self._packed_agent(index)}
        return {**request, "attempt": attempt, **fresh}

    def _setup_of(self, index: int) -> dict[str, Any]:
        """What a new worker has to know."""
        agent = self._packed_agent(index)
        return {"factory": self.factory, "number": index, "agent": agent, "env": self._envs[index]}

    def _packed_agent(self, index: int) -> bytes:
        if not self._agents:
            self._agents = _pack_agents(self.factory.spread(self.agent))
        return self._agents[index]

    def _report(self, index: int, attempt: int, problem: str) -> None:
        if attempt >= MAX_ATTEMPTS:
            message = f"sampler worker {index} failed {attempt} times in a row; the last time:\n{problem}"
            raise WorkerError(message)
        _log.warning("sampler worker %d failed and samples again in a fresh environment: %s", index, problem)


def _pack_agents(agents: list[Any]) -> list[bytes]:
    """One packing per object: most samplers have one policy for all workers."""
    packed: dict[int, bytes] = {}
    for agent in agents:
        if id(agent) not in packed:
            packed[id(agent)] = _pack_agent(agent)
    return [packed[id(agent)] for agent in agents]


def _pack_agent(agent: object) -> bytes:
    torch = sys.modules.get("torch")
    if torch is not None:  # a CUDA context per worker would cost more than it gives
        if isinstance(agent, dict):
            agent = {key: value.cpu() if torch.is_tensor(value) else value for key, value in agent.items()}
        elif isinstance(agent, torch.nn.Module) and any(one.is_cuda for one in agent.parameters()):
            agent = copy.deepcopy(agent).cpu()
    return encode({"agent": agent}).to_bytes()
