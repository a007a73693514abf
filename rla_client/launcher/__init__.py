"""Reproducible experiments in garage's style: launchers, seeds, snapshots, runner, samplers.

Everything is loaded at first use, so that `import rla_client` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rla_client.launcher import deterministic, dowel
    from rla_client.launcher.context import ExperimentContext, SnapshotConfig
    from rla_client.launcher.deterministic import get_seed, set_seed
    from rla_client.launcher.dowel import Histogram, logger, tabular
    from rla_client.launcher.episode_batch import EnvSpec, EpisodeBatch, StepType
    from rla_client.launcher.runner import LocalRunner, Trainer, log_performance, obtain_evaluation_episodes
    from rla_client.launcher.samplers import LocalSampler, MultiprocessingSampler, RaySampler
    from rla_client.launcher.snapshotter import Snapshotter
    from rla_client.launcher.workers import DefaultWorker, FragmentWorker, VecWorker, WorkerFactory
    from rla_client.launcher.wrap import wrap_experiment

_NAMES = {
    "context": ("ExperimentContext", "SnapshotConfig"),
    "deterministic": ("get_seed", "set_seed"),
    "dowel": ("Histogram", "logger", "tabular"),
    "episode_batch": ("EnvSpec", "EpisodeBatch", "StepType"),
    "runner": ("LocalRunner", "Trainer", "log_performance", "obtain_evaluation_episodes"),
    "samplers": ("LocalSampler", "MultiprocessingSampler", "RaySampler"),
    "snapshotter": ("Snapshotter",),
    "workers": ("DefaultWorker", "FragmentWorker", "VecWorker", "WorkerFactory"),
    "wrap": ("wrap_experiment",),
}
# the last three are names of earlier releases
_MODULES = {"deterministic", "dowel", "samplers", "dowel_tabular", "environments", "snapshot_codec"}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "DefaultWorker",
    "EnvSpec",
    "EpisodeBatch",
    "ExperimentContext",
    "FragmentWorker",
    "Histogram",
    "LocalRunner",
    "LocalSampler",
    "MultiprocessingSampler",
    "RaySampler",
    "SnapshotConfig",
    "Snapshotter",
    "StepType",
    "Trainer",
    "VecWorker",
    "WorkerFactory",
    "deterministic",
    "dowel",
    "get_seed",
    "log_performance",
    "logger",
    "obtain_evaluation_episodes",
    "set_seed",
    "tabular",
    "wrap_experiment",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
