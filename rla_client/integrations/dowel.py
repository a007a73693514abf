"""dowel (garage's logger, the package): an output.

    logger.add_output(RLAOutput("cartpole"))  # was: CsvOutput("progress.csv")

`rla_client.launcher.dowel` has dowel's names without the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dowel
import numpy as np

from rla_client import logger
from rla_client.adapter import CountedRows, Joined, in_its_run, leave_run, open_own_run
from rla_client.run.record.run_logger import INFO
from rla_client.run.record.summary_writer import tbx_writer

__all__ = ["RLAOutput"]


class RLAOutput(dowel.LogOutput):
    """Writes texts to log.txt, and a tabular input as a row at the next `dump_all` or before the next table.

    Args:
        task_table_name: table, if the output opens the run.
        parameters: hyper-parameters of such a run.
    """

    def __init__(self, task_table_name: str = "dowel", parameters: Mapping[str, Any] | None = None) -> None:
        self._run = open_own_run(task_table_name, parameters or {})
        self._joined = Joined()
        self._joined.join()
        self._row: dict[str, Any] = {}
        self._histograms: dict[str, Any] = {}
        self._rows = CountedRows()

    @property
    def types_accepted(self) -> tuple[type, ...]:
        """The accepted types, texts and tables."""
        return (str, dowel.TabularInput)

    @in_its_run
    def record(self, data: Any, prefix: str = "") -> None:
        """Record a text or a table."""
        if isinstance(data, str):
            logger.get_current().log(prefix + data, level=INFO, echo=False)
            return
        self.dump()
        for key, value in data.as_dict.items():
            if isinstance(value, dowel.Histogram):
                self._histograms[key] = value
            elif type(value) is float or np.isscalar(value):
                self._row[key] = value
            else:
                continue
            data.mark(key)

    @in_its_run
    def dump(self, step: int | None = None) -> None:
        """Write the row; without a step, at the number of rows so far."""
        if not self._row and not self._histograms:
            return
        at = self._rows.write(self._row, step)
        if self._histograms and "tensorboard" in logger.get_current().sinks:
            for key, value in self._histograms.items():
                tbx_writer(logger.get_current()).add_histogram(key, value, at)
        self._row, self._histograms = {}, {}

    def close(self) -> None:
        """Write the pending row. The run ends with the process, or when a later output opens one."""
        if hasattr(self, "_row"):  # dowel also closes an output whose constructor raised
            self.dump()
            leave_run(self._run)
