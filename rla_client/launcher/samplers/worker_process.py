"""The program of a sampler's worker process; `multiprocessing` starts it.

It answers requests one by one. An error in environment or policy is answered with its traceback
and the process continues. A thread watches the life pipe: when the training process is gone, this
one ends at once, also in the middle of a step.
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
from rla_client.launcher.environments import pack_env, unpack_env
from rla_client.launcher.samplers.sampler import collect, collect_rollouts
from rla_client.launcher.snapshot_codec import decode

PARENT_CHECK_S = 1.0  # for the case that somebody else inherited the pipe's other end
PROCESS_SEED = 1  # keeps the process's generators apart from the environment's seed


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


def main(requests: int, life: int, parent: int) -> None:
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
