"""The sampler whose workers are processes of their own.

A worker process is a fresh interpreter, not a fork and not a second run of
the launcher: no threads, locks or CUDA contexts are inherited, and a launcher needs no
`if __name__ == "__main__"`. What happens when an environment raises or a process dies: sampler.py.

Each request carries a number and its reply repeats it, so that a reply to a request that was
given up (Ctrl-C) is passed over.

Ends: `shutdown_worker` closes the pipes, waits `EXIT_WAIT_S`, then kills, and always reaps. A
worker also ends by itself as soon as the training process is gone, however that went.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
import weakref
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

from rla_client.launcher.samplers.sampler import RemoteSampler

EXIT_WAIT_S = 5.0


class MultiprocessingSampler(RemoteSampler):
    """Samples in `n_workers` processes at the same time."""

    def start_worker(self) -> None:
        """Start the processes; they get ready while this one continues."""
        self._numbers = itertools.count(1)
        self._pack_all()
        self._processes = [_WorkerProcess() for _ in range(self.factory.n_workers)]
        self._finalizer = weakref.finalize(self, _end_all, self._processes)
        for index in range(self.factory.n_workers):
            self._set_up(index)

    def shutdown_worker(self) -> None:
        """End and reap the processes."""
        if self._processes:
            self._finalizer()
            self._processes = []

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
                if number not in {0, waiting[index]}:
                    continue
                if problem is None:
                    answers[index] = answer
                    del waiting[index]
                    continue
                attempts[index] += 1
                self._report(index, attempts[index], problem)
                again = self._request_again(index, requests[index], attempts[index])
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
            status = process.end()
            self._processes[index] = _WorkerProcess()
            self._set_up(index)
            return 0, f"the process ended ({_describe(status)})", None
        return number, problem, answer

    def _set_up(self, index: int) -> None:
        self._send(index, "setup", self._setup_of(index))


class _WorkerProcess:
    """One process and the two pipes to it: requests, and one that only says we are alive."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        life_read, self._life = os.pipe()
        start = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from rla_client.launcher.samplers.sampler import serve; "
            f"serve({theirs.fileno()}, {life_read}, {os.getpid()})"
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


def _describe(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
