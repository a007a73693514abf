"""Server of one worker, run by its process or Ray actor.

It answers requests one by one; an error of the environment is answered with the traceback. A thread of the
process watches the life pipe: when the training process is gone, the worker ends at once, even in the
middle of a step.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from rla_client.launcher.deterministic import derive_seed, seed_worker_process
from rla_client.launcher.sampling.env_pickle import pack_env, unpack_env
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.rollouts import roll_out
from rla_client.launcher.snapshot.snapshot_pickle import decode

PARENT_CHECK_S = 1.0  # for the case that another process inherited the pipe's other end
PROCESS_SEED = 1  # keeps the process's generators apart from the environment's seed


class WorkerServer:
    """Answers requests with one worker."""

    def __init__(self) -> None:
        self._worker: Any = None
        self._setup: dict[str, Any] = {}

    def answer(self, what: str, fields: dict[str, Any]) -> tuple[str | None, object]:
        """Answer a request by (traceback or None, reply); the training process may lack the error's class."""
        try:
            return None, self._do(what, fields)
        except Exception:  # noqa: BLE001 - whatever the user's environment raises is reported
            return traceback.format_exc(), None

    def _do(self, what: str, fields: dict[str, Any]) -> object:
        if what == "setup":
            self._setup = fields
        repeated = fields.get("attempt")
        if repeated or self._worker is None:
            source = fields if repeated else self._setup
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
        parent: pid of the training process.
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
