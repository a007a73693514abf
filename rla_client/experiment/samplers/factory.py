"""What all workers of a sampler have in common, and how one is made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from rla_client.errors import ArgumentError
from rla_client.experiment.samplers.workers import DefaultWorker, Worker


@dataclass(frozen=True)
class WorkerFactory:
    """Makes the workers of a sampler.

    Attributes:
        seed: base seed, from which each worker and epoch derives its own.
        n_workers: how many.
        max_episode_length: steps after which an episode is cut off; None: the environment says.
        worker_class: class of the workers.
        worker_args: further keyword arguments of that class.
    """

    seed: int
    n_workers: int = 1
    max_episode_length: int | None = None
    worker_class: type[Worker] = DefaultWorker
    worker_args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.n_workers < 1:
            message = f"n_workers is at least 1, got {self.n_workers}"
            raise ArgumentError(message)
        if self.max_episode_length is not None and self.max_episode_length < 1:
            message = f"max_episode_length is at least 1, got {self.max_episode_length}"
            raise ArgumentError(message)

    def __call__(self, worker_number: int) -> Worker:
        """Make one."""
        return self.worker_class(
            seed=self.seed,
            worker_number=worker_number,
            max_episode_length=self.max_episode_length,
            **self.worker_args,
        )

    def quota(self, n_samples: int) -> int:
        """Steps that each worker has to give, at least, of `n_samples` in all."""
        return -(-n_samples // self.n_workers)


def physical_cores() -> int:
    """Cores of this machine that this process may use, hyperthreads counted once, at least 1."""
    import psutil  # noqa: PLC0415

    usable = len(os.sched_getaffinity(0))
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))
