"""Sampler with a process for each worker.

Each request to a worker process has a number that its reply repeats, so that the reply to an abandoned
request (Ctrl-C) is ignored.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from multiprocessing.connection import wait
from typing import Any

import cloudpickle

from rla_client.launcher.sampling.remote_sampler import RemoteSampler
from rla_client.launcher.sampling.worker_process import EXIT_WAIT_S, WorkerProcess, end_processes


class MultiprocessingSampler(RemoteSampler):
    """Samples in `n_workers` processes at the same time."""

    def start_worker(self) -> None:
        """Start the processes, without waiting until they are ready."""
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
