"""Factory of a sampler's workers."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.call_signature import signature_of
from rla_client.launcher.deterministic import get_seed
from rla_client.launcher.sampling.worker import DefaultWorker, Worker


@dataclass(frozen=True)
class WorkerFactory:
    """Makes the workers of a sampler.

    Attributes:
        seed: base seed, from which the seeds of workers and epochs are derived; None: the seed of
            `set_seed`, else a random one.
        n_workers: number of workers.
        max_episode_length: steps after which an episode is cut off; None: the environment's own limit.
        worker_class: class of the workers.
        worker_args: further keyword arguments of that class.
        max_path_length: older name of max_episode_length.
        is_tf_worker: ignored, for compatibility with garage.
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
        """The seed; never None after construction."""
        assert self.seed is not None
        return self.seed

    def __call__(self, worker_number: int) -> Worker:
        """Make the worker with this number."""
        named = signature_of(self.worker_class).parameters
        old = "max_path_length" in named and "max_episode_length" not in named
        limit = "max_path_length" if old else "max_episode_length"
        arguments = {"seed": self.seed, limit: self.max_episode_length, "worker_number": worker_number}
        return self.worker_class(**{**arguments, **(self.worker_args or {})})

    def spread(self, value: object) -> list[Any]:
        """One value per worker: the entries of a list, or the same value for all.

        Raises:
            ArgumentError: a list of another length.
        """
        if not isinstance(value, list):
            return [value] * self.n_workers
        if len(value) != self.n_workers:
            raise ArgumentError(f"a list for {self.n_workers} workers has {len(value)} entries")
        return list(value)

    def quota(self, n_samples: int) -> int:
        """Minimum number of steps of each worker, of `n_samples` in all."""
        return -(-n_samples // self.n_workers)


def physical_cores() -> int:
    """Number of physical cores that this process may use, at least 1."""
    import psutil  # noqa: PLC0415

    usable = len(os.sched_getaffinity(0))
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))


def seed_or_random() -> int:
    """The experiment's seed, else a random one, which snapshots keep."""
    seed = get_seed()
    return secrets.randbits(32) if seed is None else seed
