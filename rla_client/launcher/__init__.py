"""Reproducible experiments in garage's style.

Everything is loaded at first use, so that `import rla_client` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rla_client.launcher import deterministic, dowel
    from rla_client.launcher.context import ExperimentContext, SnapshotConfig
    from rla_client.launcher.deterministic import get_seed, set_seed
    from rla_client.launcher.dowel.dowel_logger import logger
    from rla_client.launcher.dowel.table_input import Histogram, tabular
    from rla_client.launcher.performance import log_performance, obtain_evaluation_episodes
    from rla_client.launcher.runner import LocalRunner, Trainer
    from rla_client.launcher.sampling.env_spec import EnvSpec, StepType
    from rla_client.launcher.sampling.episode_batch import EpisodeBatch
    from rla_client.launcher.sampling.fragment_worker import FragmentWorker, VecWorker
    from rla_client.launcher.sampling.local_sampler import LocalSampler
    from rla_client.launcher.sampling.multiprocessing_sampler import MultiprocessingSampler
    from rla_client.launcher.sampling.ray_sampler import RaySampler
    from rla_client.launcher.sampling.worker import DefaultWorker
    from rla_client.launcher.sampling.worker_factory import WorkerFactory
    from rla_client.launcher.snapshot.snapshotter import Snapshotter
    from rla_client.launcher.wrap import wrap_experiment

_NAMES = {
    "context": ("ExperimentContext", "SnapshotConfig"),
    "deterministic": ("get_seed", "set_seed"),
    "dowel": ("Histogram", "logger", "tabular"),
    "performance": ("log_performance", "obtain_evaluation_episodes"),
    "runner": ("LocalRunner", "Trainer"),
    "sampling.env_spec": ("EnvSpec", "StepType"),
    "sampling.episode_batch": ("EpisodeBatch",),
    "sampling.fragment_worker": ("FragmentWorker", "VecWorker"),
    "sampling.local_sampler": ("LocalSampler",),
    "sampling.multiprocessing_sampler": ("MultiprocessingSampler",),
    "sampling.ray_sampler": ("RaySampler",),
    "sampling.worker": ("DefaultWorker",),
    "sampling.worker_factory": ("WorkerFactory",),
    "snapshot.snapshotter": ("Snapshotter",),
    "wrap": ("wrap_experiment",),
}
_MODULES = {"deterministic", "dowel"}
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
