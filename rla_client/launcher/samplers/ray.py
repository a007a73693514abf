"""The sampler whose workers are actors of ray, on this machine or a cluster; needs the extra `ray`.

Ray is started where it does not run yet. Workers are those of MultiprocessingSampler
(sampler.py), with the same seeds, so both samplers give the same samples. What happens when
an environment raises or an actor dies: sampler.py.
"""

from __future__ import annotations

import traceback
import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.samplers.sampler import RemoteSampler, WorkerServer

if TYPE_CHECKING:
    from ray.actor import ActorHandle

DIED = "the actor ended"


class RaySampler(RemoteSampler):
    """Samples in `n_workers` actors of ray at the same time."""

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
        self._finalizer = weakref.finalize(self, _end_all, self._processes)

    def shutdown_worker(self) -> None:
        """End the actors. Ray itself continues; it ends with the program."""
        if self._processes:
            self._finalizer()
            self._processes = []

    def _new_actor(self, index: int) -> ActorHandle:
        actor = _ray().remote(_Actor).options(num_cpus=1).remote()
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
            problem, answer = self._result(ready[0])
            if problem is None:
                answers[index] = answer
                continue
            attempts[index] += 1
            self._report(index, attempts[index], problem)
            if problem.startswith(DIED):
                self._processes[index] = self._new_actor(index)
            again = self._request_again(index, requests[index], attempts[index])
            waiting[self._processes[index].answer.remote(what, again)] = index
        return answers

    @staticmethod
    def _result(reference: object) -> tuple[str | None, Any]:
        ray = _ray()
        try:
            problem, answer = ray.get(reference)
        except ray.exceptions.RayError as error:
            return f"{DIED} ({error})", None
        return problem, answer


class _Actor:
    """A worker's server; its errors travel as text, because their classes may not be there."""

    def __init__(self) -> None:
        self._server = WorkerServer()

    def answer(self, what: str, fields: dict[str, Any]) -> tuple[str | None, object]:
        """Do what was asked: (traceback or None, reply)."""
        try:
            return None, self._server.answer(what, fields)
        except Exception:  # noqa: BLE001 - whatever the user's environment raises is reported
            return traceback.format_exc(), None


def _ray() -> ModuleType:
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ArgumentError("RaySampler needs ray: pip install 'rla-agent[ray]'") from error
    found: ModuleType = ray
    return found


def _end_all(actors: list[Any]) -> None:
    ray = _ray()
    if ray.is_initialized():
        for actor in actors:
            ray.kill(actor)
