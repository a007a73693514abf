"""Batches of any release of garage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.sampling.episode_batch import EpisodeBatch


def paths_of(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of a sampler of the user's own
    """List of paths of a batch of any release of garage.

    Raises:
        ArgumentError: `batch` is no such batch.
    """
    for name in ("to_list", "to_trajectory_list"):
        if callable(getattr(batch, name, None)):
            return list(getattr(batch, name)())
    paths = list(batch) if isinstance(batch, Iterable) else [batch]
    if not all(isinstance(path, Mapping) for path in paths):
        raise ArgumentError(
            f"{type(batch).__name__} gives no paths: a batch has to_list() or to_trajectory_list(), "
            "or is a list of dicts"
        )
    return paths


def episodes_of(batch: Any) -> EpisodeBatch:  # noqa: ANN401 - of a worker of the user's own
    """Convert a batch of any release of garage to an EpisodeBatch.

    Raises:
        ArgumentError: `batch` is no such batch.
    """
    return batch if isinstance(batch, EpisodeBatch) else EpisodeBatch.from_list(None, paths_of(batch))


def count_steps(batch: object) -> int:
    """Number of environment steps in a batch of any release of garage.

    Raises:
        ArgumentError: `batch` is no such batch.
    """
    lengths = getattr(batch, "lengths", None)
    return int(sum(lengths)) if lengths is not None else sum(len(path["rewards"]) for path in paths_of(batch))
