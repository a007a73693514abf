"""Content of a sweep file, as `sweep_file` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rla_client.sweep.space import Method, Parameters, Space

SEED = "seed"


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one run."""

    cpus: float = 1.0
    memory: int = 0  # bytes; 0: not counted
    gpus: float = 0.0  # number of GPUs; with 0.5, two runs share one
    parallel: int | None = None  # largest number of runs at a time; None: as many as fit


@dataclass(frozen=True, slots=True)
class TrialMetric:
    """Metric that trials are judged by: its last, best or mean value in a run."""

    name: str
    goal: str = "maximize"
    of: str = "last"

    @property
    def maximize(self) -> bool:
        """Whether larger values are better."""
        return self.goal == "maximize"


@dataclass(frozen=True, slots=True)
class Spec:
    """Content of a sweep file."""

    name: str
    command: tuple[str, ...] = ()  # with placeholders; empty if an experiment is called
    experiment: str = ""  # `file.py:function` or `module:function`
    arguments: str = "--{name} {value}"  # form of one parameter in `{args}`
    method: Method = "grid"  # method of choosing trials
    space: Space = field(default_factory=Space)  # search space
    listed: tuple[Parameters, ...] = ()  # trials of method list
    trials: int | None = None  # number of trials of methods random and optuna
    seeds: tuple[int, ...] | None = None  # each trial runs once with each; None: no seeds
    metric: TrialMetric | None = None  # metric that trials are judged by
    retries: int = 0  # number of restarts of a failed run
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict)  # variables for the runs
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # engine → its options
    random_seed: int = 0  # of methods random and optuna

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all hyper-parameters of runs, the seed last."""
        listed = dict.fromkeys(name for one in self.listed for name in one)
        seed = () if self.seeds is None else (SEED,)
        return (*dict.fromkeys((*self.space.names, *listed)), *seed)

    @property
    def always(self) -> frozenset[str]:
        """Names of the hyper-parameters that every run has."""
        shared = [set(one) for one in self.listed]
        of_list = set.intersection(*shared) if shared else set()
        return frozenset((*self.space.always, *of_list, *(() if self.seeds is None else (SEED,))))

    def without_seed(self, parameters: Mapping[str, Any]) -> Parameters:
        """Parameters of the trial of a run: without the seed, if that is one of `seeds`."""
        return {name: value for name, value in parameters.items() if name != SEED or self.seeds is None}
