"""Sampler with a Ray actor for each worker, on this machine or a cluster."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.sampling.remote_sampler import RemoteSampler
from rla_client.launcher.sampling.worker_server import WorkerServer

if TYPE_CHECKING:
    from ray.actor import ActorHandle


DIED = "the actor ended"


class RaySampler(RemoteSampler):
    """Samples in `n_workers` Ray actors at the same time.

    Ray is started if it does not run yet. `shutdown_worker` ends the actors; Ray itself ends with the
    program.
    """

    def start_worker(self) -> None:
        """Start the actors.

        Raises:
            ArgumentError: Ray is not installed.
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
