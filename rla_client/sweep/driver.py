"""Driver of a sweep.

One thread decides until nothing is left to do, or until it is asked to stop; engines report ended
attempts, and a sampler chooses the next trials. Every decision is written to the journal before it is
carried out, so that another driver can continue after a kill at any point.
"""

from __future__ import annotations

import itertools
import logging
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator

from rla_client.sweep import results
from rla_client.sweep.command import can_start, files_of, work_of
from rla_client.sweep.engines.attempt_files import BY_SIGNAL, KILLS, tail
from rla_client.sweep.engines.base import AttemptEnded, Engine
from rla_client.sweep.journal import Journal, SweepError, key_of
from rla_client.sweep.run_state import DROPPED, FINISHED, OVER, RUNNING, STOPPED, WAITING, SweepRun
from rla_client.sweep.samplers import Sampler
from rla_client.sweep.space import Parameters
from rla_client.sweep.spec import SEED, Spec

LOOK_S = 0.5  # between checks for requests
GRACE_S = 30.0  # time for runs to stop before they are killed
MAX_KILLS = 10  # of one run; then it has failed, so that the sweep ends
TAIL_BYTES = 4096
FRAME = " \t│┃║╭╮╰╯─━"  # box characters around errors of rich and typer
STOP, LEAVE = "stop", "leave"
_log = logging.getLogger(__name__)


class Driver:
    """Driver of one sweep.

    Attributes:
        asked: STOP or LEAVE once requested, else empty; a signal handler may set it.
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
        self._running: dict[int, SweepRun] = {}
        self._waiting: deque[SweepRun] = deque()
        self._left_out: set[int] = set()

    def run(self) -> None:
        """Run the sweep to its end, or until a request.

        Raises:
            SweepError: the engine cannot start runs.
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
        """Stop the runs that an earlier driver left, and plan nothing; returns the number of stopped runs.

        Raises:
            SweepError: the runs cannot be found.
        """
        try:
            self._find_left()
            left = list(self._running.values())
            self.asked = STOP  # set only now, because runs that had ended before were not stopped
            self._stop()
        finally:
            self._engine.close()
        return sum(run.state == STOPPED for run in left)

    def _look(self) -> None:
        """Call `on_look` and read requests, at most once per `LOOK_S`."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._on_look()
            requested = self._journal.requested()
            self.asked = self.asked or (requested if requested in {STOP, LEAVE} else "")

    def _is_done(self) -> bool:
        return self._dry and not self._running and not self._waiting

    def _find_left(self) -> None:
        """Adopt the runs that an earlier driver started, or note their ends.

        Raises:
            SweepError: they may still run on another engine.
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
                self._note(run, AttemptEnded(run.number, status), gone="lost")

    def _remember(self) -> None:
        """Tell a learning sampler the earlier trials, and plan missing seeds of these."""
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
        """Plan trials: all of them, or with a learning sampler as many as there is room for."""
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
        """(trial, parameters) of all trials in the file; a known trial keeps its number at any position."""
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

    def _expect(self, runs: list[SweepRun]) -> None:
        """Queue planned runs that must be started; report a trial that is over to a learning sampler."""
        for run in runs:
            if run.state == DROPPED:
                self._journal.tell(run, "revived")
            if run.state in {WAITING, STOPPED}:
                self._queue(run)
        if self._sampler.learns and runs:
            self._tell(runs[0].trial)

    def _leave_out_all_but(self, planned: list[SweepRun]) -> None:
        """Drop waiting and stopped runs that the file no longer has; other runs are kept."""
        asked_for = {run.number for run in planned}
        self._left_out = self._journal.runs.keys() - asked_for
        for number in sorted(self._left_out):
            run = self._journal.runs[number]
            if run.state in {WAITING, STOPPED}:
                self._queue(run)

    def _queue(self, run: SweepRun) -> None:
        if run.number in self._left_out or not can_start(self._spec, run):
            self._journal.tell(run, "dropped")
        else:
            self._waiting.append(run)

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

    def _take(self, ended: AttemptEnded) -> None:
        run = self._running.pop(ended.number, None)
        if run is None:
            return  # reported twice
        self._note(run, ended, gone="killed")
        if run.state == WAITING:
            self._queue(run)
        if run.state in OVER and self._sampler.learns:
            self._tell(run.trial)

    def _note(self, run: SweepRun, ended: AttemptEnded, *, gone: str) -> None:
        """Note the outcome of an attempt in the journal.

        Args:
            run: the run.
            ended: report of the engine.
            gone: the outcome without an exit status: `killed`, or `lost` with an earlier driver.
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

    def _judge(self, run: SweepRun, ended: AttemptEnded, gone: str) -> tuple[str, str]:
        """Outcome of an attempt, and the reason if it is not a success."""
        status = ended.status if ended.status is not None else self._journal.exit_status(run)
        # a program may exit with 0 after a request to stop, although its run is not finished
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
            what, detail = f"killed by {signal.Signals(number).name}", ended.reason
        else:
            what = f"exit status {status}"
            detail = ended.reason or self._last_line(run)
        return "killed" if number in KILLS else "failed", f"{what}: {detail}" if detail else what

    def _finished_in_database(self, run: SweepRun) -> bool | None:
        """Whether the run has finished by its item; None if it opened none."""
        items = self._journal.items(run)
        return results.settled(items[-1]) == FINISHED if items else None

    def _last_line(self, run: SweepRun) -> str:
        """The last line of the output with a letter or a digit, without a box around it.

        If it is the hint of one of our errors, the error's line is added before it.
        """
        text = tail(self._journal.path(run, "txt"), TAIL_BYTES).decode(errors="replace")
        stripped = (line.strip(FRAME) for line in reversed(text.splitlines()))
        lines = (line for line in stripped if any(map(str.isalnum, line)))
        last = next(lines, "")
        return f"{next(lines, '')}; {last}".removeprefix("; ") if last.startswith("hint: ") else last

    def _tell(self, trial: int) -> None:
        """Report a trial's mean to a learning sampler once all its runs are over."""
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
            _log.warning(
                "trial %d ended with %s = %s, so it is reported to the sampler as failed", trial, name, value
            )
            value = None
        elif value is None and any(run.state == FINISHED for run in runs):
            _log.warning(
                "trial %d recorded no %s, so no value is reported to the sampler",
                trial,
                self._spec.metric.name,
            )
        self._sampler.tell(trial, value)

    def _stop(self) -> None:
        """Ask all runs to end, and kill those that do not end in time."""
        self._engine.stop(list(self._running), kill=False)
        deadline = time.monotonic() + GRACE_S
        while self._running:
            for ended in self._engine.ended(LOOK_S):
                self._take(ended)
            self._on_look()
            if time.monotonic() >= deadline:
                self._engine.stop(list(self._running), kill=True)
                deadline += GRACE_S
