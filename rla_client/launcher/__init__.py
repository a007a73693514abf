"""Reproducible experiments in garage's style: launchers, seeds, snapshots, runner, samplers.

Everything is loaded at first use, so that `import rla_client` stays light.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

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
# modules of earlier releases, which scripts import and snapshots name: what they are part of today
_FORMER = {
    "dowel_tabular": "dowel",
    "environments": "episode_batch",
    "snapshot_codec": "training_state",
}
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
    if name in {"deterministic", "dowel", "samplers"}:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


class _FormerModules:
    """Finder and loader in which a module of an earlier release is the one of today, under both names."""

    @classmethod
    def find_spec(cls, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        package, _dot, name = fullname.rpartition(".")
        if package != __name__ or name not in _FORMER:
            return None
        return importlib.machinery.ModuleSpec(fullname, cls)  # type: ignore[arg-type]  # as importlib's own

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> None:
        del spec

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        name = module.__name__
        home = _FORMER[name.removeprefix(f"{__name__}.")]
        sys.modules[name] = importlib.import_module(f"{__name__}.{home}")  # which `import` gives then


sys.meta_path.append(_FormerModules)
