"""What runners expect of a sampler, and what samplers with workers in other processes have in common.

Each worker gives at least its share of the asked-for steps, and the batches are put together in
the order of the workers: what comes out depends on seed, policy and number of workers, never on
which worker was faster.

Policies and environments travel to other processes as cloudpickle bytes. A worker process answers requests
one by one. One whose environment raises answers with the traceback and continues; its share is sampled again
in a fresh copy of the environment with another seed, at most `MAX_ATTEMPTS` times. A worker process that dies
is replaced, likewise. A thread of it watches the life pipe: when the training process is gone, the worker
ends at once, also in the middle of a step.
"""

from __future__ import annotations

import copy
import logging
import os
import select
import signal
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

import cloudpickle

from rla_client.contract.errors import WorkerError
from rla_client.launcher.deterministic import derive_seed, seed_worker_process
from rla_client.launcher.environments import pack_env, unpack_env
from rla_client.launcher.episode_batch import EnvSpec, EpisodeBatch, episodes_of
from rla_client.launcher.samplers.factory import WorkerFactory, physical_cores
from rla_client.launcher.samplers.workers import is_parameters, updated_env
from rla_client.launcher.snapshot_codec import decode, encode

EXACT_EPOCHS = 1 << 31  # seeds of obtain_exact_episodes, which has no iteration, lie behind all others
MAX_ATTEMPTS = 3  # one crash may be chance; three in a row with different seeds are the environment
_log = logging.getLogger("rla_client")
PARENT_CHECK_S = 1.0  # for the case that somebody else inherited the pipe's other end
PROCESS_SEED = 1  # keeps the process's generators apart from the environment's seed


class Sampler(ABC):
    """Runs policies in environments.

    Args:
        agents: the policy, or a list of one per worker.
        envs: the environment, of which further workers get copies; or a list of one per worker.
        worker_factory: makes the workers. Without one the keywords below describe it.
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
        """Garage's way to make one."""
        return cls(agents, envs, worker_factory=worker_factory, **sampler_args)

    @classmethod
    def default_workers(cls) -> int:
        """How many workers there are if nobody says."""
        return 1

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
            agent_update: the policy to use from now on, or what its `get_param_values()` gave, or
                a list of one per worker; None keeps what there is.
            env_update: likewise the environment, or a function that makes it from the former one.

        Raises:
            WorkerError: a worker failed again and again.
        """

    def obtain_exact_episodes(
        self, n_eps_per_worker: int, agent_update: object = None, env_update: object = None
    ) -> EpisodeBatch:
        """Sample `n_eps_per_worker` rollouts of each worker, in the order of the workers.

        Raises:
            WorkerError: a worker failed again and again.
        """
        self._exact_calls += 1
        return self._obtain_rollouts(
            EXACT_EPOCHS + self._exact_calls, n_eps_per_worker, agent_update, env_update
        )

    def obtain_exact_trajectories(
        self, n_traj_per_worker: int, agent_update: object = None, env_update: object = None
    ) -> EpisodeBatch:
        """Older name of obtain_exact_episodes."""
        return self.obtain_exact_episodes(n_traj_per_worker, agent_update, env_update)

    @abstractmethod
    def _obtain_rollouts(
        self, itr: int, count: int, agent_update: object, env_update: object
    ) -> EpisodeBatch:
        """What obtain_exact_episodes does, with seeds derived from `itr`."""

    def _with_spec(self, batches: list[EpisodeBatch], env: object) -> EpisodeBatch:
        """The workers' batches as one, with the spec of `env`; workers of processes do not send theirs."""
        spec = EnvSpec.of(env, self.factory.max_episode_length)
        return replace(EpisodeBatch.concatenate(batches), env_spec=spec)

    @abstractmethod
    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed (environments.pack_env): wrappers keep statistics."""

    @abstractmethod
    def restore_env_states(self, states: list[bytes]) -> None:
        """Give each worker its environment of `env_states`."""

    @abstractmethod
    def shutdown_worker(self) -> None:
        """End the workers. Does nothing the second time."""

    @abstractmethod
    def _forget_workers(self) -> None:
        """There are none yet; the first request starts them."""

    def __getstate__(self) -> dict[str, Any]:
        kept = {"factory": self.factory, "agent": self.agent, "env": self.env}
        return {**kept, "_exact_calls": self._exact_calls}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_workers()  # who only looks at a snapshot needs none


class _RollsOut(Protocol):
    """A Worker, also one of the user's own."""

    def rollout(self) -> Any:  # noqa: ANN401
        """One episode, as any release of garage gives it."""


def collect(worker: _RollsOut, share: int) -> EpisodeBatch:
    """Roll `worker` out until it gave at least `share` steps."""
    parts: list[EpisodeBatch] = []
    steps = 0
    while steps < share:
        parts.append(episodes_of(worker.rollout()))
        steps += parts[-1].n_steps
    return EpisodeBatch.concatenate(parts)


def collect_rollouts(worker: _RollsOut, count: int) -> EpisodeBatch:
    """Roll `worker` out `count` times."""
    return EpisodeBatch.concatenate([episodes_of(worker.rollout()) for _ in range(count)])


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


class WorkerServer:
    """Answers requests with one worker."""

    def __init__(self) -> None:
        self._worker: Any = None
        self._factory: Any = None
        self._number = 0
        self._setup: dict[str, Any] = {}

    def answer(self, what: str, fields: dict[str, Any]) -> object:
        """Do what was asked and give the reply."""
        if what == "setup":
            self._factory, self._number = fields["factory"], fields["number"]
            self._setup = fields
        source = fields if fields.get("attempt") else self._setup
        if fields.get("attempt") or self._worker is None:
            self._make(source["agent"], source["env"])
        if what == "setup":
            return None
        if what == "env_state":
            return pack_env(self._worker.env)
        if what == "set_env":
            self._worker.update_env(unpack_env(fields["env"]))
            return None
        return self._sample(fields)

    def _make(self, agent: bytes, env: bytes) -> None:
        self._worker = self._factory(self._number)
        self._worker.update_agent(decode(agent)["agent"])
        self._worker.update_env(unpack_env(env))

    def _sample(self, fields: dict[str, Any]) -> object:
        if fields["env"] is not None and not fields.get("attempt"):
            self._worker.update_env(unpack_env(fields["env"]))
        if fields["agent"] is not None:
            self._worker.update_agent(decode(fields["agent"])["agent"])
        attempt = fields.get("attempt", 0)
        seed_worker_process(
            derive_seed(self._factory.seed, self._number, fields["itr"], attempt, PROCESS_SEED)
        )
        self._worker.start_epoch(fields["itr"], attempt)
        if "rollouts" in fields:
            return collect_rollouts(self._worker, fields["rollouts"])
        return collect(self._worker, fields["share"])


def serve(requests: int, life: int, parent: int) -> None:
    """Serve until the pipe closes.

    Args:
        requests: descriptor of the socket that requests come from.
        life: descriptor of the pipe that ends when the training process does.
        parent: process id of the training process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(life, parent), daemon=True).start()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # several workers share the machine
    pipe = Connection(requests)
    server = WorkerServer()
    while True:
        try:
            number, what, fields = cloudpickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        _one_thread()
        problem, reply = None, None
        try:
            reply = server.answer(what, fields)
        except Exception:  # noqa: BLE001 - whatever the user's environment raises is reported
            problem = traceback.format_exc()
        if what != "setup":  # an error in setup shows again at the first request
            pipe.send_bytes(cloudpickle.dumps((number, problem, reply)))


def _watch(life: int, parent: int) -> None:
    while os.getppid() == parent:
        if select.select([life], [], [], PARENT_CHECK_S)[0]:
            break
    os._exit(0)


def _one_thread() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
