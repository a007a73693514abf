"""State of a training in a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

FORMAT_VERSION = 1


def older_name(attribute: str) -> Any:  # noqa: ANN401 - of any type
    """A property that reads and sets the attribute of this name."""

    def get(owner: object) -> object:
        return getattr(owner, attribute)

    def put(owner: object, value: object) -> None:
        setattr(owner, attribute, value)

    return property(get, put, doc=f"Older name of {attribute}.")


@dataclass
class TrainArgs:
    """Arguments of `train`; `restore` returns a copy, which may be changed.

    Attributes:
        n_epochs: total number of epochs, including those before a resume.
        batch_size: minimum number of environment steps of one call for samples; None: set by each call.
        plot: show an episode of the policy after each epoch.
        store_episodes: keep the last samples in the snapshot.
        pause_for_plot: wait for Enter after each shown episode.
        start_epoch: the first epoch of this part of the training.
    """

    n_epochs: int
    batch_size: int | None
    plot: bool = False
    store_episodes: bool = False
    pause_for_plot: bool = False
    start_epoch: int = 0

    store_paths = older_name("store_episodes")

    def __getstate__(self) -> list[Any]:  # the format of snapshots since the first release
        return [getattr(self, one.name) for one in fields(self)]

    def __setstate__(self, state: list[Any]) -> None:
        for one, value in zip(fields(self), state, strict=True):
            setattr(self, one.name, value)


@dataclass(slots=True)
class TrainStats:
    """Counters that a resume continues.

    Attributes:
        total_epoch: the last finished epoch, -1 before the first.
        total_itr: the algorithm's iteration.
        total_env_steps: number of sampled environment steps.
        sampled: number of calls to the sampler, from which it derives its seeds.
        last_episode: the last samples, with store_episodes.
    """

    total_epoch: int = -1
    total_itr: int = 0
    total_env_steps: int = 0
    sampled: int = 0
    last_episode: Any = None

    last_path = older_name("last_episode")


@dataclass(frozen=True, slots=True)
class SetupArgs:
    """Description of the sampler by `setup`."""

    sampler_cls: type[Any] | None
    sampler_args: dict[str, Any]
    seed: int
    n_workers: int
    worker_class: type[Any]
    worker_args: dict[str, Any] = field(default_factory=dict)
    max_episode_length: int | None = None
