"""The mean of a row over MPI ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rla_client.run.record.excluded_sinks import Row


class Comm(Protocol):
    """An mpi4py communicator, as far as a mean needs one."""

    def gather(self, sendobj: object, root: int) -> list[Any] | None:
        """What all ranks give, on rank `root`; None on the others."""


def mean_over_ranks(comm: Comm, row: Row, counts: Mapping[str, int]) -> Row:
    """Average numbers over MPI ranks, weighted by how many values each holds (baselines).

    Returns:
        The averaged row on rank 0, an empty one on the others. Text is taken from the first
        rank that has the key.
    """
    gathered = comm.gather([(key, value, counts.get(key, 1)) for key, value in row.items()], root=0)
    if gathered is None:
        return {}
    sums: dict[str, tuple[float, int]] = {}
    result: Row = {}
    for key, value, count in (entry for rank in gathered for entry in rank):
        if isinstance(value, (int, float)):
            total, weight = sums.get(key, (0.0, 0))
            sums[key] = (total + value * count, weight + count)
            result[key] = sums[key][0] / sums[key][1]
        else:
            result.setdefault(key, value)
    return result
