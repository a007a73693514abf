"""Assembly of rows from single scalars.

Each scalar comes with its step.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from rla_client.contract.layout import PRINTED
from rla_client.contract.process.exit_hooks import at_exit
from rla_client.contract.process.fork_hooks import at_fork
from rla_client.run.record.excluded_sinks import Row
from rla_client.run.record.run_logger import Logger

EVENTS_HAVE_IT = ("tensorboard", "log")  # a SummaryWriter sends each scalar as an event of its own
ROW_WAIT_S = 1.0  # time that a row waits for further scalars of its step


class ScalarRows:
    """Assembles rows from values that come one by one, each with its step.

    A row is the consecutive values of one step. It is written when a value of another step comes, or of a
    name that it has already, when the writer is flushed, when the run ends, and at the latest ROW_WAIT_S
    after its first value. Outputs that have the values already do not get the row; nor is it printed. The
    clock follows the furthest step, and restarts where the steps do.
    """

    def __init__(self, current: Logger) -> None:
        self._logger = current
        self._values: Row = {}
        self._step, self._wall_time, self._begun = 0.0, 0.0, 0.0
        self._exclude: tuple[str, ...] = EVENTS_HAVE_IT
        self._waiting = threading.Event()
        self._watched = False  # the thread that writes rows that wait runs in this process
        at_fork(self)

    def after_fork_in_child(self) -> None:
        """Discard the pending row, which belongs to the parent."""
        self._values, self._waiting = {}, threading.Event()
        self._watched = False

    def add(
        self,
        tag: str,
        value: object,
        step: float,
        wall_time: float,
        exclude: tuple[str, ...] = EVENTS_HAVE_IT,
    ) -> None:
        """Take a value; `exclude` names the outputs that do not get it by the row."""
        with self._logger.lock:
            if self._values and (step != self._step or tag in self._values or exclude != self._exclude):
                self.write()
            if not self._values:
                self._begin(step, exclude, tag)
            self._values[tag] = value
            self._wall_time = wall_time

    def add_all(
        self, values: Row, step: float, wall_time: float, exclude: tuple[str, ...], *, complete: bool = False
    ) -> set[str]:
        """Take several values of one step; a row that is `complete` gets no further values.

        Returns:
            Names whose former value in this row was replaced.
        """
        with self._logger.lock:
            held = self._values
            if held and (step != self._step or exclude != self._exclude):
                self.write()
            if complete and not self._values:
                self._logger.clock.follow(step, next(iter(values), ""))
                self._logger.write_row(values, step, wall_time, exclude)
                return set()
            if not self._values:
                self._begin(step, exclude, next(iter(values), ""))
            held = self._values
            renewed = {name for name in held.keys() & values.keys() if held[name] != values[name]}
            held.update(values)
            self._wall_time = wall_time
            if complete:
                self.write()
            return renewed

    def _begin(self, step: float, exclude: tuple[str, ...], name: str) -> None:
        self._step, self._exclude, self._begun = step, exclude, time.monotonic()
        self._logger.clock.follow(step, name)
        if not self._watched:
            at_exit(self.write)  # a worker's run has no close of its own
            self._watched = True
            with suppress(RuntimeError):  # no thread available: rows wait for the next step
                threading.Thread(target=self._write_late_rows, name="rla-scalars", daemon=True).start()
        if not self._waiting.is_set():  # to set it takes five times as long
            self._waiting.set()

    def write(self) -> None:
        """Write the pending row, if there is one."""
        with self._logger.lock:
            values, self._values = self._values, {}
            if values:
                self._logger.write_row(values, self._step, self._wall_time, self._exclude)

    def _write_late_rows(self) -> None:
        while True:
            self._waiting.wait()
            time.sleep(ROW_WAIT_S)
            with self._logger.lock:
                if not self._values:
                    self._waiting.clear()
                elif time.monotonic() - self._begun >= ROW_WAIT_S:
                    self.write()


def scalar_rows(current: Logger) -> ScalarRows | None:
    """The assembler of a run's rows from single values; None where the run has no file of rows."""
    if current.scalar_rows is None and current.sinks - PRINTED - {"log", "tensorboard"}:
        current.scalar_rows = ScalarRows(current)
    rows: ScalarRows | None = current.scalar_rows
    return rows
