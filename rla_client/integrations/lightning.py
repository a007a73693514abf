"""Lightning: a logger for its Trainer.

    trainer = Trainer(logger=RLALogger("mnist", vars(args)))  # was: CSVLogger("logs", "mnist")

Rows have Lightning's keys and steps. Values of the module's `save_hyperparameters` become hyper-parameters.
Lightning's checkpoints are written into the run's checkpoint folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from rla_client.adapter import CountedRows, Joined, in_its_run, leave_run, open_own_run
from rla_client.manager import ExpManager
from rla_client.run.parameters.config_objects import to_parameters
from rla_client.run.run import Run

__all__ = ["RLALogger"]


class RLALogger(Logger):
    """Writes on rank 0 only; the run begins when the Trainer starts.

    It ends with the process, or when a later logger opens a run after this one's Trainer has finished.

    Args:
        task_table_name: table, if the logger opens the run.
        config: hyper-parameters, e.g. `vars(args)`.
        track: names of hyper-parameters that become part of such a run's index, e.g. `["lr"]`.
    """

    name = "lightning"  # of the subfolder with Lightning's checkpoints
    version = ""  # each run has its own folder

    def __init__(
        self, task_table_name: str = "lightning", config: Any = None, track: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._table, self._config, self._track = task_table_name, to_parameters(config), track
        self._opened, self._rows = False, CountedRows()
        self._joined = Joined()
        self._run: Run | None = None  # that was opened here

    @rank_zero_only
    def _open(self) -> None:
        if not self._opened:
            self._run, self._opened = open_own_run(self._table, self._config, self._track), True
            self._joined.join()

    @property
    def experiment(self) -> ExpManager:
        """`exp_manager` of the run, which is open on rank 0."""
        self._open()
        return self._joined.manager

    @property
    def save_dir(self) -> str | None:
        """The run's checkpoint folder; None on other ranks."""
        return self.experiment.checkpoint_dir

    @property
    def log_dir(self) -> str | None:
        """The run's log folder; None on other ranks."""
        return self.experiment.log_dir

    @rank_zero_only
    def log_hyperparams(self, params: Any = None, *_: Any, **__: Any) -> None:
        """Add hyper-parameters: a mapping, a Namespace, a dataclass."""
        self.experiment.add_hyper_param(to_parameters(params))

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write a row; without a step, at the number of rows so far."""
        self._open()
        self._write(metrics, step)

    @in_its_run
    def _write(self, metrics: Mapping[str, Any], step: int | None) -> None:
        self._rows.write(metrics, step)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Leave the run, as a Trainer has finished."""
        leave_run(self._run, "failed" if status == "failed" else "finished")
