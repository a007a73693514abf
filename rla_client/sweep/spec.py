"""Content of a sweep file, as `sweep_file` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rla_client.sweep.space import Method, Parameters, Space

SEED = "seed"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one run takes."""

    cpus: float = 1.0
    memory: int = 0  # bytes; 0: not counted
    gpus: float = 0.0  # of its own; a half lets two runs share one
    parallel: int | None = None  # runs at a time at most; None: as many as fit


@dataclass(frozen=True, slots=True)
class TrialMetric:
    """What a trial is judged by: the last value of a metric, or its best or mean over the run."""

    name: str
    goal: str = "maximize"
    of: str = "last"

    @property
    def maximize(self) -> bool:
        """Whether more is better."""
        return self.goal == "maximize"


@dataclass(frozen=True, slots=True)
class Spec:
    """What a sweep file asks for."""

    name: str
    command: tuple[str, ...] = ()  # with placeholders; empty where an experiment is called
    experiment: str = ""  # `file.py:function` or `module:function`
    arguments: str = "--{name} {value}"  # what one parameter becomes in `{args}`
    method: Method = "grid"  # how trials are chosen
    space: Space = field(default_factory=Space)  # what is tried
    listed: tuple[Parameters, ...] = ()  # the trials of method list
    trials: int | None = None  # how many, of methods random and optuna
    seeds: tuple[int, ...] | None = None  # each trial runs once with each; None: no such dimension
    metric: TrialMetric | None = None  # what a trial is judged by
    retries: int = 0  # how often a run that failed is started again
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict)  # variables for the runs
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of an engine: its own
    random_seed: int = 0  # of methods random and optuna

    @property
    def names(self) -> tuple[str, ...]:
        """Every hyper-parameter that a run may have, the seed last."""
        listed = dict.fromkeys(name for one in self.listed for name in one)
        seed = () if self.seeds is None else (SEED,)
        return (*dict.fromkeys((*self.space.names, *listed)), *seed)

    @property
    def always(self) -> frozenset[str]:
        """Those that every run has."""
        shared = [set(one) for one in self.listed]
        of_list = set.intersection(*shared) if shared else set()
        return frozenset((*self.space.always, *of_list, *(() if self.seeds is None else (SEED,))))

    def without_seed(self, parameters: Mapping[str, Any]) -> Parameters:
        """The choice that a run's parameters are: all but the seed, if that is one of `seeds`."""
        return {name: value for name, value in parameters.items() if name != SEED or self.seeds is None}
