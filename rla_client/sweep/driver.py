"""Starts, watches and repeats the runs of a sweep until there is nothing left to do, or it is asked to stop.

One thread decides; engines tell it of ends, and a sampler says what is tried next. What it decides is in the
journal before it is done, so that another driver continues from any line of this one.

`begin` makes a driver from a sweep's file, also of one that was begun before.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import signal
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rla_client.config.project import DATA_FOLDER, find_config
from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.database.tree.data_root import NoRunsYetError, find_data_root
from rla_client.sweep import results
from rla_client.sweep.command import can_start, check_command, files_of, work_of
from rla_client.sweep.engines.base import KILLS, Ended, Engine, tail
from rla_client.sweep.engines.local import LocalEngine
from rla_client.sweep.engines.supervisor import BY_SIGNAL
from rla_client.sweep.journal import (
    DROPPED,
    FAILED,
    FILE,
    FINISHED,
    OVER,
    RUNNING,
    STOPPED,
    WAITING,
    Journal,
    RunState,
    SweepError,
    key_of,
)
from rla_client.sweep.space import MAX_GRID, MAX_RUNS, Parameters, Range
from rla_client.sweep.spec import SEED, Spec, read_spec

if TYPE_CHECKING:
    import optuna

LOOK_S = 0.5  # between two looks at what was asked meanwhile
GRACE_S = 30.0  # for runs that are to stop; then they are killed
MAX_KILLS = 10  # of one run: something kills it each time, and a sweep must end
TAIL_BYTES = 4096
FRAME = " \t│┃║╭╮╰╯─━"  # around errors that rich and typer print
STOP, LEAVE = "stop", "leave"
_log = logging.getLogger(__name__)


class Driver:
    """See the module.

    Attributes:
        asked: STOP or LEAVE once that was asked; a signal handler may set it.
    """

    def __init__(
        self,
        journal: Journal,
        spec: Spec,
        engine: Engine,
        sampler: Sampler,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self.asked = ""
        self._journal, self._spec, self._engine, self._sampler = journal, spec, engine, sampler
        self._on_look = on_look
        self._trials = itertools.count(1)
        self._looked = 0.0
        self._dry = False  # the sampler has no more trials
        self._running: dict[int, RunState] = {}
        self._waiting: deque[RunState] = deque()
        self._left_out: set[int] = set()

    def run(self) -> None:
        """Do all of it.

        Raises:
            SweepError: the engine can start nothing.
        """
        try:
            self._find_left()
            known = max((run.trial for run in self._journal.runs.values()), default=0)
            self._trials = itertools.count(known + 1)
            if self._sampler.learns:
                self._remember()
            while not (self.asked or self._is_done()):
                self._plan()
                self._start()
                for ended in self._engine.ended(0.0 if self._is_done() else LOOK_S):
                    self._take(ended)
                self._look()
            if self.asked == STOP:
                self._stop()
        finally:
            self._engine.close()
        self._on_look()

    def stop_left(self) -> int:
        """Stop what an earlier driver left running, and plan nothing; how many runs were stopped.

        Raises:
            SweepError: it cannot be found.
        """
        try:
            self._find_left()
            left = list(self._running.values())
            self.asked = STOP  # only now: what ended before was not stopped
            self._stop()
        finally:
            self._engine.close()
        return sum(run.state == STOPPED for run in left)

    def _look(self) -> None:
        """Show what is new and see what was asked; not after each of a thousand short runs."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._on_look()
            requested = self._journal.requested()
            self.asked = self.asked or (requested if requested in {STOP, LEAVE} else "")

    def _is_done(self) -> bool:
        return self._dry and not self._running and not self._waiting

    # -- what is to be run ----------------------------------------------------------------------

    def _find_left(self) -> None:
        """Find out what became of the runs that an earlier driver began.

        Raises:
            SweepError: they may still be going, on another engine.
        """
        began = [run for run in self._journal.runs.values() if run.state == RUNNING]
        for run in began:
            status = self._journal.exit_status(run)
            if status is None and run.engine != self._engine.name:
                raise SweepError(
                    f"run {run.number} was started on {run.engine}, and may still be going there\n"
                    f"hint: continue with `--on {run.engine}`"
                )
            if status is None and self._engine.adopt(files_of(self._journal, run), run.handle):
                self._running[run.number] = run
            else:
                self._note(run, Ended(run.number, status), gone="lost")

    def _remember(self) -> None:
        """Tell a learning sampler what was tried; a trial whose seeds are not all planned gets the others."""
        trials = results.trials_of(self._journal.runs)
        wanted: list[tuple[int, Parameters]] = []
        for trial, runs in sorted(trials.items()):
            parameters = self._spec.without_seed(runs[0].parameters)
            self._sampler.known(trial, parameters)
            wanted += self._with_seeds(trial, parameters)
        planned = self._journal.plan(wanted)
        self._leave_out_all_but(planned)
        for trial in trials:
            self._expect([run for run in planned if run.trial == trial])

    def _plan(self) -> None:
        """Have trials planned: all of them, or of a learning sampler what there is room for."""
        if self._dry:
            return
        if not self._sampler.learns:
            planned = self._journal.plan(self._all())
            self._leave_out_all_but(planned)
            self._expect(planned)
            self._dry = True
            return
        while len(self._waiting) < self._engine.room():
            parameters = self._sampler.next()
            if parameters is None:
                self._dry = True
                return
            self._expect(self._journal.plan(self._with_seeds(next(self._trials), parameters), anew=True))

    def _all(self) -> Iterator[tuple[int, Parameters]]:
        """All that the file asks for; a trial that was planned before keeps its number wherever it stands."""
        known: dict[str, dict[int, None]] = {}
        for run in self._journal.runs.values():
            known.setdefault(key_of(self._spec.without_seed(run.parameters)), {})[run.trial] = None
        left = {key: iter(trials) for key, trials in known.items()}
        for parameters in iter(self._sampler.next, None):
            trial = next(left.get(key_of(parameters), iter(())), None)
            yield from self._with_seeds(next(self._trials) if trial is None else trial, parameters)

    def _with_seeds(self, trial: int, parameters: Parameters) -> list[tuple[int, Parameters]]:
        if self._spec.seeds is None:
            return [(trial, parameters)]
        return [(trial, {**parameters, SEED: seed}) for seed in self._spec.seeds]

    def _expect(self, runs: list[RunState]) -> None:
        """Queue what is to be started of planned runs; a learning sampler hears of a trial that is over."""
        for run in runs:
            if run.state == DROPPED:
                self._journal.tell(run, "revived")
            if run.state in {WAITING, STOPPED}:
                self._queue(run)
        if self._sampler.learns and runs:
            self._tell(runs[0].trial)

    def _leave_out_all_but(self, planned: list[RunState]) -> None:
        """Runs that the file no longer asks for are not started; what runs or is over stays as it is."""
        asked_for = {run.number for run in planned}
        self._left_out = self._journal.runs.keys() - asked_for
        for number in sorted(self._left_out):
            run = self._journal.runs[number]
            if run.state in {WAITING, STOPPED}:
                self._queue(run)

    def _queue(self, run: RunState) -> None:
        if run.number in self._left_out or not can_start(self._spec, run):
            self._journal.tell(run, "dropped")
        else:
            self._waiting.append(run)

    # -- starting and ending --------------------------------------------------------------------

    def _start(self) -> None:
        room = self._engine.room() if self._waiting else 0
        batch = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        if not batch:
            return
        for run in batch:
            if run.attempts:
                self._journal.path(run, "exit").unlink(missing_ok=True)
            self._journal.tell(run, "started", engine=self._engine.name, handle=self._engine.handle)
            self._running[run.number] = run
        try:
            handles = self._engine.start([work_of(self._spec, self._journal, run) for run in batch])
        except SweepError:
            for run in batch:
                self._journal.tell(run, "lost")
            raise
        for run, handle in zip(batch, handles, strict=True):
            if handle:
                self._journal.tell(run, "placed", handle=handle)

    def _take(self, ended: Ended) -> None:
        run = self._running.pop(ended.number, None)
        if run is None:
            return  # told twice
        self._note(run, ended, gone="killed")
        if run.state == WAITING:
            self._queue(run)
        if run.state in OVER and self._sampler.learns:
            self._tell(run.trial)

    def _note(self, run: RunState, ended: Ended, *, gone: str) -> None:
        """Write down what became of an attempt.

        Args:
            run: whose.
            ended: what its engine says of it.
            gone: the outcome where nothing tells how it ended: it was killed, or lost with an earlier driver.
        """
        outcome, reason = self._judge(run, ended, gone)
        content: dict[str, object] = {"reason": reason} if reason else {}
        if (outcome == "failed" and run.failures < self._spec.retries) or (
            outcome == "killed" and run.kills < MAX_KILLS
        ):
            content["again"] = True
        if gone == "lost" and (when := self._journal.exit_time(run)) is not None:
            content["ended"] = when
        self._journal.tell(run, outcome, **content)

    def _judge(self, run: RunState, ended: Ended, gone: str) -> tuple[str, str]:
        """The outcome of an attempt, and its reason where it is none to wish for."""
        status = ended.status if ended.status is not None else self._journal.exit_status(run)
        # a program that was asked to end may do so in good order before its run has finished
        if status == 0 and not (self.asked == STOP and self._finished_in_database(run) is False):
            return "finished", ""
        number = 0 if status is None else status - BY_SIGNAL
        if (status is None or number in KILLS) and self._finished_in_database(run):
            return "finished", ""
        if self.asked == STOP:
            return "stopped", ""
        if status is None:
            return gone, ended.reason
        if number in KILLS:
            what, said = f"killed by {signal.Signals(number).name}", ended.reason
        else:
            what = f"exit status {status}"
            said = ended.reason or self._last_words(run)
        return "killed" if number in KILLS else "failed", f"{what}: {said}" if said else what

    def _finished_in_database(self, run: RunState) -> bool | None:
        """None: it opened no item."""
        items = self._journal.items(run)
        return results.settled(items[-1]) == FINISHED if items else None

    def _last_words(self, run: RunState) -> str:
        """The last line of the output that has a letter or a digit, without the frame of a box around it.

        If that is the hint of one of our errors, the error is before it.
        """
        text = tail(self._journal.path(run, "txt"), TAIL_BYTES).decode(errors="replace")
        stripped = (line.strip(FRAME) for line in reversed(text.splitlines()))
        lines = (line for line in stripped if any(map(str.isalnum, line)))
        last = next(lines, "")
        return f"{next(lines, '')}; {last}".removeprefix("; ") if last.startswith("hint: ") else last

    def _tell(self, trial: int) -> None:
        """Tell a learning sampler what came of a trial once all its runs are over: their mean."""
        assert self._spec.metric is not None
        runs = results.trials_of(self._journal.runs)[trial]
        if any(run.state not in OVER for run in runs):
            return
        values = []
        for run in runs:
            items = self._journal.items(run) if run.state == FINISHED else []
            if items:
                results.settled(items[-1])
                values.append(results.value(items[-1], self._spec.metric))
        value = results.trial_value(values)[0]
        if value is not None and not math.isfinite(value):
            name = self._spec.metric.name
            _log.warning("trial %d has %s %s: the sampler is told that it failed", trial, name, value)
            value = None
        elif value is None and any(run.state == FINISHED for run in runs):
            _log.warning(
                "trial %d has no value of %s: the sampler learns nothing of it", trial, self._spec.metric.name
            )
        self._sampler.tell(trial, value)

    def _stop(self) -> None:
        """Ask all runs to end; those that do not in time are killed."""
        self._engine.stop(list(self._running), kill=False)
        deadline = time.monotonic() + GRACE_S
        while self._running:
            for ended in self._engine.ended(LOOK_S):
                self._take(ended)
            self._on_look()
            if time.monotonic() >= deadline:
                self._engine.stop(list(self._running), kill=True)
                deadline += GRACE_S


ENGINES = ("local", "slurm", "ray")


def find_root(given: Path | None) -> Path:
    """The database of a sweep, which may not be there yet: as `rla_client.init` chooses it.

    Raises:
        DatabaseError: there are several.
    """
    if given is not None:
        return given.absolute()
    here = Path.cwd()
    config = find_config(here)
    try:
        return find_data_root(here)
    except NoRunsYetError:
        return (here if config is None else config.parent) / DATA_FOLDER
    except DatabaseError:
        if config is not None:
            raise
        return here / DATA_FOLDER


def make_engine(name: str, spec: Spec, journal: Journal) -> Engine:
    """The engine of this name.

    Raises:
        SweepError: it cannot be used here, or takes no such run.
    """
    if name == "slurm":
        from rla_client.sweep.engines.slurm_job import SlurmEngine  # noqa: PLC0415 - an extra

        return SlurmEngine(spec, journal)
    if name == "ray":
        from rla_client.sweep.engines.ray import RayEngine  # noqa: PLC0415 - an extra

        return RayEngine(spec, journal)
    return LocalEngine(spec.resources, learns=spec.method == "optuna")


def begin(
    path: Path,
    root: Path,
    engine: str,
    *,
    name: str | None = None,
    failed: bool = False,
    on_look: Callable[[Journal, Spec], None],
) -> tuple[Journal, Spec, Driver]:
    """Be the driver of the sweep of a file, which may have been begun before.

    Args:
        path: the file.
        root: the database.
        engine: one of ENGINES.
        name: of the sweep where the file gives none; None: that of the file.
        failed: start again what failed.
        on_look: called about twice a second.

    Returns:
        The sweep, held; its file; what runs it.

    Raises:
        ConfigError: the file has faults.
        SweepError: it cannot be started; nothing was.
    """
    spec = read_spec(path, name)
    text = path.read_bytes()
    journal = Journal(root, spec.name)
    folder = journal.read().begun_in if journal.exists() else os.getcwd()
    if not os.path.isdir(folder):
        raise SweepError(f"{folder}, where the sweep was started, no longer exists")
    check_command(spec, Path(folder))
    sampler = make_sampler(spec)
    journal.hold()
    try:
        made = make_engine(engine, spec, journal)
        write_atomic(journal.folder / FILE, text)
        for run in journal.runs.values():
            if failed and run.state == FAILED:
                journal.tell(run, "revived")
    except BaseException:
        journal.discard()
        journal.release()
        raise
    return journal, spec, Driver(journal, spec, made, sampler, lambda: on_look(journal, spec))


def kept_spec(journal: Journal) -> Spec:
    """The file of a sweep as it was last started.

    Raises:
        ConfigError: it is damaged.
    """
    return read_spec(journal.folder / FILE, journal.name, begun=True)


# -- which choices of parameters are tried next ------------------------------------------------------


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
