"""Samplers: they run a policy in environments, by workers (workers.py), and give episodes.

    LocalSampler             workers in the training process itself, one after the other
    MultiprocessingSampler   each in a process of its own
    RaySampler               each in an actor of ray, on this machine or a cluster; needs the extra `ray`

Each worker gives at least its share of the asked-for steps, and the batches are put together in
the order of the workers: what comes out depends on seed, policy and number of workers, never on
which worker was faster. So processes and actors, with the same seeds, give the same samples.

Policies and environments travel to other processes as cloudpickle bytes. When a worker's environment raises
there, its share is sampled again in a fresh copy of the environment with another seed, at most `MAX_ATTEMPTS`
times. A worker process or actor that dies is replaced, likewise.

Each request to a worker process carries a number and its reply repeats it, so that a reply to a request that
was given up (Ctrl-C) is passed over.

`LocalRunner.setup` describes a sampler. Of what it is not told, the algorithm's attributes say it, else a
default.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle

from rla_client.contract.errors import ArgumentError, WorkerError
from rla_client.launcher import workers
from rla_client.launcher.episode_batch import EnvSpec, EpisodeBatch, StepType, copy_env, pack_env, unpack_env
from rla_client.launcher.training_state import SetupArgs, pack_agents
from rla_client.launcher.workers import (
    EXIT_WAIT_S,
    DefaultWorker,
    FragmentWorker,
    VecWorker,
    Worker,
    WorkerFactory,
    WorkerProcess,
    WorkerServer,
    end_processes,
    is_parameters,
    physical_cores,
    roll_out,
    seed_or_random,
    updated_env,
)

if TYPE_CHECKING:
    from ray.actor import ActorHandle

__all__ = [
    "DefaultWorker",
    "EpisodeBatch",
    "FragmentWorker",
    "LocalSampler",
    "MultiprocessingSampler",
    "RaySampler",
    "Sampler",
    "StepType",
    "VecWorker",
    "Worker",
    "WorkerFactory",
]
EXACT_EPOCHS = 1 << 31  # seeds of obtain_exact_episodes, which has no iteration, lie behind all others
MAX_ATTEMPTS = 3  # one crash may be chance; three in a row with different seeds are the environment
DIED = "the actor ended"
_log = logging.getLogger("rla_client")


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
            WorkerError: a worker's environment, policy or process failed MAX_ATTEMPTS times in a row.
                LocalSampler gives errors of the environment as they come.
        """
        share = self.factory.quota(num_samples)
        return self._sample({"itr": itr, "share": share}, agent_update, env_update)

    def obtain_exact_episodes(
        self, n_eps_per_worker: int, agent_update: object = None, env_update: object = None
    ) -> EpisodeBatch:
        """Sample `n_eps_per_worker` rollouts of each worker, in the order of the workers.

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
        """Have every worker `roll_out(worker, what)`, in epoch `what["itr"]`."""

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


class LocalSampler(Sampler):
    """Samples in this process, one worker after the other.

    Worker 0 uses the given environment, further ones use copies; all use the policy itself, so an
    update of it costs nothing. Random numbers of the policy come from the process's generators.
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

    def _own_envs(self, given: object) -> list[Any]:
        if isinstance(given, list) or not hasattr(given, "step"):
            return self.factory.spread(given)  # one for each already, or a function that makes them
        return [given if number == 0 else copy_env(given) for number in range(self.factory.n_workers)]

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
        """Give the workers their environments back; worker 0 keeps the one it shares with the runner."""
        if not self._workers:
            self.start_worker()
        for worker, state in list(zip(self._workers, states, strict=False))[1:]:
            worker.update_env(unpack_env(state))

    def _forget_workers(self) -> None:
        self._workers = []

    def shutdown_worker(self) -> None:
        """Let go of the copies. The environment itself belongs to who made it."""
        for worker in self._workers[1:]:
            worker.shutdown()
        self._workers = []


class RemoteSampler(Sampler):
    """A sampler that asks processes."""

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
        """Have what a worker that must begin afresh needs."""
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
        self._agents = []  # packed again when a worker has to begin afresh
        return pack_agents(updates)

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

    def shutdown_worker(self) -> None:
        """End and reap the processes. Does nothing the second time."""
        if self._processes:
            self._finalizer()
            self._processes = []

    @abstractmethod
    def _ask_all(self, what: str, requests: list[dict[str, Any]]) -> list[Any]:
        """Ask every worker and wait for the answers, in the order of the workers."""

    def _setup_of(self, index: int) -> dict[str, Any]:
        """What a new worker has to know."""
        return {"factory": self.factory, "number": index, **self._fresh(index)}

    def _fresh(self, index: int) -> dict[str, bytes]:
        if not self._agents:
            self._agents = pack_agents(self.factory.spread(self.agent))
        return {"env": self._envs[index], "agent": self._agents[index]}

    def _again(
        self, index: int, request: dict[str, Any], attempts: list[int], problem: str
    ) -> dict[str, Any]:
        """The request that failed, for a worker that begins afresh.

        Raises:
            WorkerError: it has failed too often.
        """
        attempts[index] += 1
        attempt = attempts[index]
        if attempt >= MAX_ATTEMPTS:
            message = f"sampler worker {index} failed {attempt} times in a row; the last time:\n{problem}"
            raise WorkerError(message)
        _log.warning("sampler worker %d failed and samples again in a fresh environment: %s", index, problem)
        return {**request, "attempt": attempt, **self._fresh(index)}


class MultiprocessingSampler(RemoteSampler):
    """Samples in `n_workers` processes at the same time."""

    def start_worker(self) -> None:
        """Start the processes; they get ready while this one continues."""
        self._numbers = itertools.count(1)
        self._pack_all()
        self._processes = [WorkerProcess() for _ in range(self.factory.n_workers)]
        self._finalizer = weakref.finalize(self, end_processes, self._processes)
        for index in range(self.factory.n_workers):
            self._send(index, "setup", self._setup_of(index))

    def _ask_all(self, what: str, requests: list[dict[str, Any]]) -> list[Any]:
        attempts = [0] * len(requests)
        answers: list[Any] = [None] * len(requests)
        waiting = {index: self._send(index, what, request) for index, request in enumerate(requests)}
        while waiting:
            for index in self._ready(list(waiting)):
                number, problem, answer = self._receive(index)
                if number not in {0, waiting[index]}:
                    continue
                if problem is None:
                    answers[index] = answer
                    del waiting[index]
                else:
                    again = self._again(index, requests[index], attempts, problem)
                    waiting[index] = self._send(index, what, again)
        return answers

    def _ready(self, indices: list[int]) -> list[int]:
        by_pipe = {self._processes[index].pipe: index for index in indices}
        return [by_pipe[pipe] for pipe in wait(list(by_pipe))]

    def _send(self, index: int, what: str, fields: dict[str, Any]) -> int:
        number = next(self._numbers)
        with contextlib.suppress(OSError):  # a dead worker shows when its reply is read
            self._processes[index].pipe.send_bytes(cloudpickle.dumps((number, what, fields)))
        return number

    def _receive(self, index: int) -> tuple[int, str | None, Any]:
        process = self._processes[index]
        try:
            number, problem, answer = cloudpickle.loads(process.pipe.recv_bytes())
        except (EOFError, OSError):
            status = process.end(time.monotonic() + EXIT_WAIT_S)
            self._processes[index] = WorkerProcess()
            self._send(index, "setup", self._setup_of(index))
            why = f"signal {-status}" if status < 0 else f"exit status {status}"
            return 0, f"the process ended ({why})", None
        return number, problem, answer


class RaySampler(RemoteSampler):
    """Samples in `n_workers` actors of ray at the same time.

    Ray is started where it does not run yet. `shutdown_worker` ends the actors; ray itself continues, and
    ends with the program.
    """

    def start_worker(self) -> None:
        """Start the actors.

        Raises:
            ArgumentError: ray is not installed.
        """
        ray = _ray()
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)
        self._pack_all()
        self._processes = [self._new_actor(index) for index in range(self.factory.n_workers)]
        self._finalizer = weakref.finalize(self, _end_actors, self._processes)

    def _new_actor(self, index: int) -> ActorHandle:
        actor = _ray().remote(WorkerServer).options(num_cpus=1).remote()
        actor.answer.remote("setup", self._setup_of(index))  # an error shows again at the first request
        return actor

    def _ask_all(self, what: str, requests: list[dict[str, Any]]) -> list[Any]:
        ray = _ray()
        answers: list[Any] = [None] * len(requests)
        attempts = [0] * len(requests)
        waiting = {
            actor.answer.remote(what, request): index
            for index, (actor, request) in enumerate(zip(self._processes, requests, strict=True))
        }
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            index = waiting.pop(ready[0])
            try:
                problem, answers[index] = ray.get(ready[0])
            except ray.exceptions.RayError as error:
                problem = f"{DIED} ({error})"
            if problem is None:
                continue
            again = self._again(index, requests[index], attempts, problem)
            if problem.startswith(DIED):
                self._processes[index] = self._new_actor(index)
            waiting[self._processes[index].answer.remote(what, again)] = index
        return answers


def _ray() -> ModuleType:
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ArgumentError("RaySampler needs ray: pip install 'rla-agent[ray]'") from error
    found: ModuleType = ray
    return found


def _end_actors(actors: list[Any]) -> None:
    ray = _ray()
    if ray.is_initialized():
        for actor in actors:
            ray.kill(actor)


def describe_setup(
    algo: object,
    sampler_cls: type[Sampler] | None,
    sampler_args: dict[str, Any] | None,
    n_workers: int | None,
    worker_class: type[Any] | None,
    worker_args: dict[str, Any] | None,
) -> SetupArgs:
    """Fill in what was left open; see LocalRunner.setup.

    Without a seed the samplers get a random one, which snapshots keep.

    Raises:
        ArgumentError: n_workers is below 1.
    """
    chosen = sampler_cls or getattr(algo, "sampler_cls", None) or LocalSampler
    if n_workers is None:
        default = getattr(chosen, "default_workers", physical_cores)  # a sampler of the user's own has none
        n_workers = default()
    if n_workers < 1:
        raise ArgumentError(f"n_workers is at least 1, got {n_workers}")
    return SetupArgs(
        sampler_cls=chosen,
        sampler_args=dict(sampler_args or {}),
        seed=seed_or_random(),
        n_workers=n_workers,
        worker_class=worker_class or getattr(algo, "worker_cls", None) or DefaultWorker,
        worker_args=dict(worker_args or {}),
        max_episode_length=_episode_limit(algo),
    )


def _episode_limit(algo: object) -> int | None:
    limits = (getattr(algo, name, None) for name in ("max_episode_length", "max_path_length"))
    return next((int(limit) for limit in limits if limit is not None), None)


class RunnerSampler:
    """The sampler of one runner: the algorithm's own, or one as `setup` described it."""

    def __init__(self) -> None:
        self._sampler: Any = None
        self._restored: list[bytes] = []

    def start(self, setup: SetupArgs, algo: object, policy: object, env: object) -> Any:  # noqa: ANN401
        """The sampler, made or started if need be."""
        if self._sampler is not None:
            return self._sampler
        given = getattr(algo, "sampler", None) or getattr(algo, "_sampler", None)
        sampler_cls: Any = setup.sampler_cls or LocalSampler
        if callable(getattr(given, "obtain_samples", None)):
            self._sampler = given
        elif hasattr(sampler_cls, "from_worker_factory"):
            factory = WorkerFactory(
                seed=setup.seed,
                n_workers=setup.n_workers,
                max_episode_length=setup.max_episode_length,
                worker_class=setup.worker_class,
                worker_args=setup.worker_args,
            )
            self._sampler = sampler_cls.from_worker_factory(
                factory, agents=policy, envs=env, **setup.sampler_args
            )
        else:  # of 2020.06's kind
            sampler = sampler_cls(algo, env, **setup.sampler_args)
            if hasattr(sampler, "start_worker"):
                sampler.start_worker()
            self._sampler = sampler
        if self._restored:
            self._sampler.restore_env_states(self._restored)
            self._restored = []
        return self._sampler

    def end(self) -> None:
        """Shut it down. The algorithm's own starts its workers again when it is next asked."""
        sampler, self._sampler = self._sampler, None
        shut_down = getattr(sampler, "shutdown_worker", None)
        if shut_down is not None:
            shut_down()

    def env_states(self) -> list[bytes]:
        """The workers' environments, packed; none before the first samples."""
        take = getattr(self._sampler, "env_states", None)  # a sampler of the user's own may have none
        states: list[bytes] = [] if take is None else take()
        return states

    def restore(self, states: list[bytes]) -> None:
        """Give the next sampler these environments."""
        self._restored = states


def taken_by(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Those keyword arguments that a function takes."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return arguments
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


# Modules of earlier releases, which scripts import and snapshots name, in the manner of os.path.
for _former in ("local", "multiprocessing", "ray", "sampler", "factory", "workers"):
    _today = workers if _former in {"factory", "workers"} else sys.modules[__name__]
    globals()[_former] = sys.modules[f"{__name__}.{_former}"] = _today
for _former in ("PARENT_CHECK_S", "PROCESS_SEED", "collect", "collect_rollouts", "serve"):
    globals()[_former] = getattr(workers, _former)
