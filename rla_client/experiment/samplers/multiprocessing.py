"""The sampler whose workers are processes of their own.

A worker process is a fresh interpreter (worker_process.py), not a fork and not a second run of
the launcher: no threads, locks or CUDA contexts are inherited, and a launcher needs no
`if __name__ == "__main__"`. Policies and environments travel by cloudpickle.

Each request carries a number and its reply repeats it, so that a reply to a request that was
given up (Ctrl-C) is passed over. A worker whose environment raises reports the traceback; its
share is sampled again in a fresh copy of the environment with another seed, at most
`MAX_ATTEMPTS` times. A worker process that dies is replaced, likewise.

Ends: `shutdown_worker` closes the pipes, waits `EXIT_WAIT_S`, then kills, and always reaps. A
worker also ends by itself as soon as the training process is gone, however that went.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import os
import socket
import subprocess
import sys
import time
import weakref
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

from rla_client.errors import WorkerError
from rla_client.experiment.environments import pack_env
from rla_client.experiment.episode_batch import EpisodeBatch
from rla_client.experiment.samplers.sampler import Sampler
from rla_client.experiment.snapshot_codec import CopyTarget, encode

MAX_ATTEMPTS = 3  # one crash may be chance; three in a row with different seeds are the environment
EXIT_WAIT_S = 5.0

_log = logging.getLogger("rla_client")


class MultiprocessingSampler(Sampler):
    """Samples in `n_workers` processes at the same time."""

    def start_worker(self) -> None:
        """Start the processes; they get ready while this one goes on."""
        self._numbers = itertools.count(1)
        self._env = pack_env(self.env)
        self._agent = _pack_agent(self.agent)
        self._processes = [_WorkerProcess() for _ in range(self.factory.n_workers)]
        self._finalizer = weakref.finalize(self, _end_all, self._processes)
        for index in range(self.factory.n_workers):
            self._set_up(index)

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
        if env_update is not None:
            self.env, self._env = env_update, pack_env(env_update)
        if agent_update is not None:
            self.agent, self._agent = agent_update, _pack_agent(agent_update)
        fields: dict[str, Any] = {"itr": itr, "share": self.factory.quota(num_samples)}
        fields["agent"] = None if agent_update is None else self._agent
        fields["env"] = None if env_update is None else self._env
        batches: list[EpisodeBatch] = self._ask_all("sample", [dict(fields) for _ in self._processes])
        return EpisodeBatch.concatenate(batches)

    def env_states(self) -> list[bytes]:
        """Each worker's environment, packed."""
        states: list[bytes] = self._ask_all("env_state", [{} for _ in self._processes])
        return states

    def restore_env_states(self, states: list[bytes]) -> None:
        """Give the workers their environments back."""
        padded = [*states, *([self._env] * len(self._processes))]
        self._ask_all("set_env", [{"env": padded[index]} for index in range(len(self._processes))])

    def shutdown_worker(self) -> None:
        """End and reap the processes."""
        self._finalizer()

    # -- requests -----------------------------------------------------------------------------

    def _ask_all(self, what: str, requests: list[dict[str, Any]]) -> list[Any]:
        waiting = {}
        attempts = [0] * len(requests)
        answers: list[Any] = [None] * len(requests)
        for index, request in enumerate(requests):
            waiting[index] = self._send(index, what, request)
        while waiting:
            for index in self._ready(list(waiting)):
                number, problem, answer = self._receive(index)
                if problem is None and number != waiting[index]:
                    continue
                if problem is None:
                    answers[index] = answer
                    del waiting[index]
                    continue
                attempts[index] += 1
                self._report(index, attempts[index], problem)
                again = {
                    **requests[index],
                    "attempt": attempts[index],
                    "env": self._env,
                    "agent": self._agent,
                }
                waiting[index] = self._send(index, what, again)
        return answers

    def _ready(self, indices: list[int]) -> list[int]:
        by_pipe = {self._processes[index].pipe: index for index in indices}
        return [by_pipe[pipe] for pipe in wait(list(by_pipe))]  # type: ignore[index]

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
            status = process.end()
            self._processes[index] = _WorkerProcess()
            self._set_up(index)
            return 0, f"the process ended ({_describe(status)})", None
        return number, problem, answer

    def _set_up(self, index: int) -> None:
        setup = {"factory": self.factory, "number": index, "agent": self._agent, "env": self._env}
        self._send(index, "setup", setup)

    def _report(self, index: int, attempt: int, problem: str) -> None:
        if attempt >= MAX_ATTEMPTS:
            message = f"sampler worker {index} failed {attempt} times in a row; the last time:\n{problem}"
            raise WorkerError(message)
        _log.warning("sampler worker %d failed and samples again in a fresh environment: %s", index, problem)

    def __getstate__(self) -> dict[str, Any]:
        return {"factory": self.factory, "agent": self.agent, "env": self.env}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.start_worker()


class _WorkerProcess:
    """One process and the two pipes to it: requests, and one that only says we are alive."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        life_read, self._life = os.pipe()
        start = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from rla_client.experiment.samplers.worker_process import main; "
            f"main({theirs.fileno()}, {life_read}, {os.getpid()})"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", start],
                pass_fds=(theirs.fileno(), life_read),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the training process's to handle
            )
        finally:
            theirs.close()
            os.close(life_read)
        self.pipe = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def hang_up(self) -> None:
        """Tell the process to end."""
        if not self.pipe.closed:
            self.pipe.close()
            os.close(self._life)

    def end(self, deadline: float | None = None) -> int:
        """End and reap the process; returns its exit status (negative: signal)."""
        self.hang_up()
        patience = EXIT_WAIT_S if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _end_all(processes: list[_WorkerProcess]) -> None:
    deadline = time.monotonic() + EXIT_WAIT_S
    for process in processes:
        process.hang_up()
    for process in processes:
        process.end(deadline)


def _pack_agent(agent: Any) -> bytes:  # noqa: ANN401 - policies are the user's own
    torch = sys.modules.get("torch")
    module = torch is not None and isinstance(agent, torch.nn.Module)
    if module and any(parameter.is_cuda for parameter in agent.parameters()):
        agent = copy.deepcopy(agent).cpu()  # a CUDA context per worker would cost more than it gives
    target = CopyTarget()
    encode({"agent": agent}, target)
    return target.to_bytes()


def _describe(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
