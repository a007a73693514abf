"""The open outputs of one experiment: rows, text, and how many rows there are.

An experiment owns a run of its own (rla_client/run.py) and makes its logger the current one;
`close` puts the former logger, clock, prefixes and pending values back, so experiments nest and
follow each other in one process. What is logged after that goes to whoever was current before.

`rows` counts the rows of progress.csv since the very beginning of the experiment, also over
resumes; snapshots carry it, and `rewind` cuts the outputs back to it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client import logger as rla_logger
from rla_client.clock import time_step_holder
from rla_client.experiment import dowel
from rla_client.experiment.cut import csv_line_ends, cut_outputs
from rla_client.experiment.settle import settle
from rla_client.run import open_plain_run

if TYPE_CHECKING:
    from rla_client.run import Run

SINKS = ("stdout", "log", "csv", "tensorboard")
TEXT_NAME = "debug.log"

_open: list[Outputs] = []


class Outputs:
    """The outputs of one experiment in a plain folder. Opens at once.

    Args:
        log_dir: the folder.
        x_axis: key of the row that is the time-step.
        keep_rows: rows of an earlier part that stay; None: as many as there are.

    Raises:
        LaunchError: the earlier part cannot be cut now (see `settle`).
    """

    def __init__(self, log_dir: str | os.PathLike[str], x_axis: str, keep_rows: int | None = None) -> None:
        self.log_dir = os.fspath(log_dir)
        self._x_axis = x_axis
        self.rows = self._prepare(keep_rows)
        self._former_logger = rla_logger.get_current()
        self._former_time = time_step_holder.get_time()
        self._former_tabular = dowel.tabular.swap({}, [])
        self._former_dowel = dowel.logger.swap([], x_axis)
        time_step_holder.set_time(0)
        self._run = self._open_run()
        _open.append(self)

    def _prepare(self, keep_rows: int | None) -> int:
        csv = Path(self.log_dir, "progress.csv")
        if keep_rows is None and not csv.exists():
            return 0
        settle(self.log_dir)
        if keep_rows is not None:
            return cut_outputs(self.log_dir, keep_rows)
        return max(0, len(csv_line_ends(csv.read_bytes())) - 1)

    def _open_run(self) -> Run:
        run = open_plain_run(self.log_dir, SINKS, self._count_row, None, "", {"log": TEXT_NAME})
        rla_logger.set_current(run.logger)
        return run

    def _count_row(self, _row: dict[str, Any]) -> None:
        self.rows += 1

    def rewind(self, rows: int) -> None:
        """Cut the outputs back to their first `rows` rows and go on behind them.

        Raises:
            LaunchError: see `settle`.
        """
        if rows == self.rows:
            return
        self._run.close("finished", "")
        self.rows = self._prepare(rows)
        self._run = self._open_run()

    def close(self, state: str, reason: str) -> None:
        """End the run as `state` (finished, failed) and put the former logger back."""
        if self not in _open:
            return
        _open.remove(self)
        self._run.close(state, reason)
        rla_logger.set_current(self._former_logger)
        time_step_holder.set_time(self._former_time)
        dowel.tabular.swap(*self._former_tabular)
        dowel.logger.swap(*self._former_dowel)


def current_outputs() -> Outputs | None:
    """The innermost open experiment's outputs, None outside of any."""
    return _open[-1] if _open else None
