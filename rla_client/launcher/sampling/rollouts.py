"""Rollouts of a worker."""

from __future__ import annotations

from typing import Any

from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.garage_batch import episodes_of


def roll_out(worker: Any, what: dict[str, Any]) -> EpisodeBatch:  # noqa: ANN401 - also one of the user's own
    """Roll `worker` out `what["rollouts"]` times, else for at least `what["share"]` steps."""
    if "rollouts" in what:
        return collect_rollouts(worker, what["rollouts"])
    return collect(worker, what["share"])


def collect(worker: Any, share: int) -> EpisodeBatch:  # noqa: ANN401
    """Roll `worker` out for at least `share` steps."""
    parts: list[EpisodeBatch] = []
    steps = 0
    while steps < share:
        parts.append(episodes_of(worker.rollout()))
        steps += parts[-1].n_steps
    return EpisodeBatch.concatenate(parts)


def collect_rollouts(worker: Any, count: int) -> EpisodeBatch:  # noqa: ANN401
    """Roll `worker` out `count` times."""
    return EpisodeBatch.concatenate([episodes_of(worker.rollout()) for _ in range(count)])
