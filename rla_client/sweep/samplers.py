"""Samplers of parameters."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rla_client.sweep.journal import SweepError
from rla_client.sweep.space import MAX_GRID, MAX_RUNS, Parameters, Range
from rla_client.sweep.spec import Spec

if TYPE_CHECKING:
    import optuna


class Sampler(Protocol):
    """Says what is tried, trial after trial."""

    learns: bool  # what is tried next depends on what came of others

    def next(self) -> Parameters | None:
        """The next trial's parameters; None when there are no more."""

    def tell(self, trial: int, value: float | None) -> None:
        """What came of a trial, counted from 1; None: nothing, it failed."""

    def known(self, trial: int, parameters: Mapping[str, Any]) -> None:
        """A trial that an earlier driver began; it counts as given."""


def make_sampler(spec: Spec) -> Sampler:
    """The sampler of the sweep's method.

    Raises:
        SweepError: optuna is not installed, or there are more runs than make any sense.
    """
    _check_runs(spec, spec.trials or 0)
    if spec.method == "optuna":
        return OptunaSampler(spec)
    trials = list(_trials(spec))
    _check_runs(spec, len(trials))
    return Listed(trials)


class Listed:
    """Methods grid, list and random, or nothing: what is tried does not depend on what came of it."""

    learns = False

    def __init__(self, trials: Iterable[Parameters] = ()) -> None:
        self._trials = iter(trials)

    def next(self) -> Parameters | None:
        """As `Sampler.next`."""
        return next(self._trials, None)

    def tell(self, trial: int, value: float | None) -> None:
        """Nothing depends on it."""

    def known(self, trial: int, parameters: Mapping[str, Any]) -> None:
        """They are given again: the journal knows them by what they are."""


def _check_runs(spec: Spec, trials: int) -> None:
    if (count := trials * len(spec.seeds or (0,))) > MAX_RUNS:
        raise SweepError(
            f"{count} runs are more than a sweep can have\nhint: at most {MAX_RUNS}; try fewer seeds"
        )


def _trials(spec: Spec) -> Iterator[Parameters]:
    if spec.method == "random":
        yield from (spec.space.draw(spec.random_seed, trial) for trial in range(1, (spec.trials or 0) + 1))
        return
    listed = spec.listed if spec.method == "list" else ({},)
    for count, chosen in enumerate((chosen for one in listed for chosen in spec.space.grid(one)), 1):
        if count > MAX_GRID:
            raise SweepError(f"the {spec.method} has more than {MAX_GRID} trials\nhint: try `method: random`")
        yield chosen


class OptunaSampler:
    """Method optuna: its default sampler (TPE), which learns from the trials that ended.

    The study lives in memory; what earlier drivers tried is told to it again.
    """

    learns = True

    def __init__(self, spec: Spec) -> None:
        try:
            import optuna  # noqa: PLC0415 - an extra
        except ImportError:
            raise SweepError("method optuna needs optuna\nhint: pip install 'rla-agent[optuna]'") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        assert spec.metric is not None
        self._spec = spec
        self._study = optuna.create_study(direction=spec.metric.goal)
        self._asked: dict[int, optuna.trial.Trial] = {}
        self._earlier: dict[int, Mapping[str, Any]] = {}

    def next(self) -> Parameters | None:
        """As `Sampler.next`."""
        number = max(max(self._asked, default=0), max(self._earlier, default=0)) + 1
        if number > (self._spec.trials or 0):
            return None
        self._study.sampler = self._sampler(number)
        trial = self._asked[number] = self._study.ask()
        chosen: Parameters = {}
        for one in self._spec.space.dimensions:
            if not one.applies(chosen):
                continue
            kind = one.kind
            if not isinstance(kind, Range):
                chosen[one.name] = trial.suggest_categorical(one.name, kind.values)
            elif kind.whole:
                chosen[one.name] = trial.suggest_int(one.name, int(kind.low), int(kind.high), log=kind.log)
            else:
                chosen[one.name] = trial.suggest_float(one.name, kind.low, kind.high, log=kind.log)
        return chosen

    def _sampler(self, trial: int) -> optuna.samplers.BaseSampler:
        """A sampler for one trial: begun anew, a single one would give its first draws again."""
        import optuna  # noqa: PLC0415 - an extra

        # constant_liar: what runs beside counts as bad, so that parallel trials differ
        seed = zlib.crc32(f"{self._spec.random_seed}/{trial}".encode())
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def tell(self, trial: int, value: float | None) -> None:
        """As `Sampler.tell`."""
        import optuna  # noqa: PLC0415 - an extra

        failed = optuna.trial.TrialState.FAIL
        if trial in self._asked:
            self._study.tell(self._asked[trial], value, state=failed if value is None else None)
        elif trial in self._earlier and value is not None:
            parameters, distributions = self._earlier[trial], {}
            for one in self._spec.space.dimensions:
                kind, known = one.kind, optuna.distributions
                if one.name not in parameters:
                    continue
                if not isinstance(kind, Range):
                    distributions[one.name] = known.CategoricalDistribution(kind.values)
                elif kind.whole:
                    bounds = int(kind.low), int(kind.high)
                    distributions[one.name] = known.IntDistribution(*bounds, log=kind.log)
                else:
                    distributions[one.name] = known.FloatDistribution(kind.low, kind.high, log=kind.log)
            chosen = {name: parameters[name] for name in distributions}
            try:
                told = optuna.trial.create_trial(params=chosen, distributions=distributions, value=value)
            except ValueError:  # the file's ranges have changed since, and it lies outside of them
                return
            self._study.add_trial(told)

    def known(self, trial: int, parameters: Mapping[str, Any]) -> None:
        """As `Sampler.known`."""
        self._earlier[trial] = parameters
