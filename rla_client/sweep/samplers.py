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
    """Chooses the parameters of trials, one after another."""

    learns: bool  # whether the next trial depends on the results of others

    def next(self) -> Parameters | None:
        """Parameters of the next trial; None if there are no more."""

    def tell(self, trial: int, value: float | None) -> None:
        """Report the value of a trial, counted from 1; None if it failed."""

    def known(self, trial: int, parameters: Mapping[str, Any]) -> None:
        """Report a trial of an earlier driver, which counts as chosen."""


def make_sampler(spec: Spec) -> Sampler:
    """Make the sampler of the sweep's method.

    Raises:
        SweepError: optuna is not installed, or there are too many runs.
    """
    _check_runs(spec, spec.trials or 0)
    if spec.method == "optuna":
        return OptunaSampler(spec)
    trials = list(_trials(spec))
    _check_runs(spec, len(trials))
    return Listed(trials)


class Listed:
    """Sampler of the methods grid, list and random, which do not depend on results."""

    learns = False

    def __init__(self, trials: Iterable[Parameters] = ()) -> None:
        self._trials = iter(trials)

    def next(self) -> Parameters | None:
        """See `Sampler.next`."""
        return next(self._trials, None)

    def tell(self, trial: int, value: float | None) -> None:
        """Ignore the result."""

    def known(self, trial: int, parameters: Mapping[str, Any]) -> None:
        """Do nothing: the trial is chosen again, and the journal recognizes its parameters."""


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
    """Sampler of the method optuna: its default sampler (TPE), which learns from ended trials.

    The study is in memory; trials of earlier drivers are added to it again.
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
        """See `Sampler.next`."""
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
        """A sampler for one trial; a single seeded sampler would repeat its first draws after a restart."""
        import optuna  # noqa: PLC0415 - an extra

        # constant_liar: running trials count as bad, so that parallel trials differ
        seed = zlib.crc32(f"{self._spec.random_seed}/{trial}".encode())
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def tell(self, trial: int, value: float | None) -> None:
        """See `Sampler.tell`."""
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
                added = optuna.trial.create_trial(params=chosen, distributions=distributions, value=value)
            except ValueError:  # the file's ranges have changed since and exclude it
                return
            self._study.add_trial(added)

    def known(self, trial: int, parameters: Mapping[str, Any]) -> None:
        """See `Sampler.known`."""
        self._earlier[trial] = parameters
