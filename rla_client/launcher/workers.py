"""Workers: one environment (or a few) and a policy, in whatever process they were put.

A worker is told when an epoch begins. It then reseeds from (seed, worker, epoch) and resets its
environments, so what an epoch samples does not depend on earlier ones having run in the same
process. That, and the snapshot's generator states, is why a resumed run repeats the uninterrupted one.

The policy is whatever has `get_action(observation)` (giving the action, or a pair of action and
a dict of infos), or can be called so; `reset()` is called at the start of an episode if it is there.
`FragmentWorker` and `VecWorker` use `get_actions(observations)` where there is one; `reset(mask)` tells such
a policy in which of its environments an episode begins.

A worker may have a process of its own (`WorkerProcess`): a fresh interpreter, not a fork and not a second run
of the launcher. No threads, locks or CUDA contexts are inherited, and a launcher needs no
`if __name__ == "__main__"`. `serve` is what it runs: it answers requests one by one. One whose environment
raises answers with the traceback and continues. A thread watches the life pipe: when the training process is
gone, however that went, the worker ends at once, also in the middle of a step. Who ends a worker closes the
pipes, waits `EXIT_WAIT_S`, then kills, and always reaps.
"""

from __future__ import annotations

import inspect
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.deterministic import derive_seed, get_seed, seed_worker_process
from rla_client.launcher.episode_batch import (
    Episode,
    EpisodeBatch,
    copy_env,
    episodes_of,
    pack_env,
    stack,
    unpack_env,
)
from rla_client.launcher.training_state import decode

PARENT_CHECK_S = 1.0  # for the case that somebody else inherited the pipe's other end
EXIT_WAIT_S = 5.0
PROCESS_SEED = 1  # keeps the process's generators apart from the environment's seed


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
            for number in np.flatnonzero(over):
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


@dataclass(frozen=True)
class WorkerFactory:
    """Makes the workers of a sampler.

    Attributes:
        seed: base seed, from which each worker and epoch derives its own; None: the one of
            `set_seed`, else a random one.
        n_workers: how many.
        max_episode_length: steps after which an episode is cut off; None: the environment says.
        worker_class: class of the workers.
        worker_args: further keyword arguments of that class.
        max_path_length: older name of max_episode_length.
        is_tf_worker: taken for garage's sake.
    """

    seed: int | None = None
    n_workers: int = 1
    max_episode_length: int | None = None
    worker_class: type[Worker] = DefaultWorker
    worker_args: dict[str, Any] | None = None
    max_path_length: int | None = None
    is_tf_worker: bool = False

    def __post_init__(self) -> None:
        if self.seed is None:
            object.__setattr__(self, "seed", seed_or_random())
        if self.max_episode_length is None:
            object.__setattr__(self, "max_episode_length", self.max_path_length)
        if self.n_workers < 1:
            raise ArgumentError(f"n_workers is at least 1, got {self.n_workers}")
        if self.max_episode_length is not None and self.max_episode_length < 1:
            raise ArgumentError(f"max_episode_length is at least 1, got {self.max_episode_length}")

    @property
    def base_seed(self) -> int:
        """The seed, which is never None any more."""
        assert self.seed is not None
        return self.seed

    def __call__(self, worker_number: int) -> Worker:
        """Make one."""
        named = inspect.signature(self.worker_class).parameters
        old = "max_path_length" in named and "max_episode_length" not in named
        limit = "max_path_length" if old else "max_episode_length"
        arguments = {"seed": self.seed, limit: self.max_episode_length, "worker_number": worker_number}
        return self.worker_class(**{**arguments, **(self.worker_args or {})})

    def spread(self, given: object) -> list[Any]:
        """One of `given` per worker: the same for all, or a list's entries.

        Raises:
            ArgumentError: a list of another length.
        """
        if not isinstance(given, list):
            return [given] * self.n_workers
        if len(given) != self.n_workers:
            raise ArgumentError(f"a list for {self.n_workers} workers has {len(given)} entries")
        return list(given)

    def quota(self, n_samples: int) -> int:
        """Steps that each worker has to give, at least, of `n_samples` in all."""
        return -(-n_samples // self.n_workers)


def physical_cores() -> int:
    """Cores of this machine that this process may use, hyperthreads counted once, at least 1."""
    import psutil  # noqa: PLC0415

    usable = len(os.sched_getaffinity(0))
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))


def seed_or_random() -> int:
    """The experiment's seed; where it has none a random one, which snapshots keep."""
    seed = get_seed()
    return secrets.randbits(32) if seed is None else seed


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
    return _with_infos(choose(observation))


def choose_actions(agent: object, observations: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Ask a policy for an action per observation, in one call where it can."""
    choose = getattr(agent, "get_actions", None)
    if choose is None:
        return [choose_action(agent, observation) for observation in observations]
    actions, infos = _with_infos(choose(stack(observations)))
    return [
        (action, {key: values[number] for key, values in infos.items()})
        for number, action in enumerate(actions)
    ]


def _with_infos(answer: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):  # noqa: PLR2004 - a pair
        return answer
    return answer, {}


def seed_spaces(env: object, seed: int) -> None:
    """Seed the spaces, from which exploring policies draw actions."""
    for name in ("action_space", "observation_space"):
        space = getattr(env, name, None)
        if space is not None and hasattr(space, "seed"):
            space.seed(seed)


def roll_out(worker: Any, what: dict[str, Any]) -> EpisodeBatch:  # noqa: ANN401 - also one of the user's own
    """Roll `worker` out: `what["rollouts"]` times, else until it gave at least `what["share"]` steps."""
    if "rollouts" in what:
        return collect_rollouts(worker, what["rollouts"])
    return collect(worker, what["share"])


def collect(worker: Any, share: int) -> EpisodeBatch:  # noqa: ANN401
    """Roll `worker` out until it gave at least `share` steps."""
    parts: list[EpisodeBatch] = []
    steps = 0
    while steps < share:
        parts.append(episodes_of(worker.rollout()))
        steps += parts[-1].n_steps
    return EpisodeBatch.concatenate(parts)


def collect_rollouts(worker: Any, count: int) -> EpisodeBatch:  # noqa: ANN401
    """Roll `worker` out `count` times."""
    return EpisodeBatch.concatenate([episodes_of(worker.rollout()) for _ in range(count)])


class WorkerServer:
    """Answers requests with one worker."""

    def __init__(self) -> None:
        self._worker: Any = None
        self._setup: dict[str, Any] = {}

    def answer(self, what: str, fields: dict[str, Any]) -> tuple[str | None, object]:
        """Do what was asked: (traceback or None, reply); the class of an error may not be there to load."""
        try:
            return None, self._do(what, fields)
        except Exception:  # noqa: BLE001 - whatever the user's environment raises is reported
            return traceback.format_exc(), None

    def _do(self, what: str, fields: dict[str, Any]) -> object:
        if what == "setup":
            self._setup = fields
        afresh = fields.get("attempt")
        if afresh or self._worker is None:
            source = fields if afresh else self._setup
            self._worker = self._setup["factory"](self._setup["number"])
            self._worker.update_agent(decode(source["agent"])["agent"])
            self._worker.update_env(unpack_env(source["env"]))
        if what == "setup":
            return None
        if what == "env_state":
            return pack_env(self._worker.env)
        if what == "set_env":
            self._worker.update_env(unpack_env(fields["env"]))
            return None
        return self._sample(fields)

    def _sample(self, fields: dict[str, Any]) -> EpisodeBatch:
        attempt = fields.get("attempt", 0)
        if fields["env"] is not None and not attempt:
            self._worker.update_env(unpack_env(fields["env"]))
        if fields["agent"] is not None:
            self._worker.update_agent(decode(fields["agent"])["agent"])
        seed, number = self._setup["factory"].seed, self._setup["number"]
        seed_worker_process(derive_seed(seed, number, fields["itr"], attempt, PROCESS_SEED))
        self._worker.start_epoch(fields["itr"], attempt)
        return roll_out(self._worker, fields)


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
        torch = sys.modules.get("torch")
        if torch is not None and torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        answer = server.answer(what, fields)
        if what != "setup":  # an error in setup shows again at the first request
            pipe.send_bytes(cloudpickle.dumps((number, *answer)))


def _watch(life: int, parent: int) -> None:
    while os.getppid() == parent:
        if select.select([life], [], [], PARENT_CHECK_S)[0]:
            break
    os._exit(0)


class WorkerProcess:
    """One process and the two pipes to it: requests, and one that only says we are alive."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        life_read, self._life = os.pipe()
        start = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from rla_client.launcher.workers import serve; "
            f"serve({theirs.fileno()}, {life_read}, {os.getpid()})"
        )
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", start],
                pass_fds=(theirs.fileno(), life_read),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the training process's to handle
            )
        finally:
            theirs.close()
            os.close(life_read)
        self.pipe = Connection(ours.detach())

    def hang_up(self) -> None:
        """Tell the process to end."""
        if not self.pipe.closed:
            self.pipe.close()
            os.close(self._life)

    def end(self, deadline: float) -> int:
        """End and reap the process; returns its exit status (negative: signal)."""
        self.hang_up()
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def end_processes(processes: list[WorkerProcess]) -> None:
    """End and reap them, all at the same time."""
    deadline = time.monotonic() + EXIT_WAIT_S
    for process in processes:
        process.hang_up()
    for process in processes:
        process.end(deadline)
