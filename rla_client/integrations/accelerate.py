"""Accelerate: a tracker.

accelerator = Accelerator(log_with=RLATracker("cartpole"))  # was: log_with="tensorboard"
accelerator.init_trackers("cartpole", config=vars(args))
accelerator.log({"loss": 0.5}, step=1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from rla_client.adapter import CountedRows, Joined, ensure_run, in_its_run
from rla_client.manager import ExpManager, exp_manager
from rla_client.media.image_recorder import ImgRecorder
from rla_client.stream.clock import time_step_holder

__all__ = ["RLATracker"]


class RLATracker(GeneralTracker):
    """Writes a row for each `accelerator.log` of the main process; the run ends with `end_training`.

    Args:
        task_table_name: table, if the tracker opens the run.
        track: names of the configuration that become part of such a run's index, e.g. `["seed"]`.
    """

    name = "rla"
    requires_logging_directory = False

    def __init__(self, task_table_name: str = "accelerate", track: Sequence[str] = ()) -> None:
        super().__init__()
        self._table, self._track, self._owns, self._rows = task_table_name, track, False, CountedRows()
        self._joined = Joined()

    @property
    def tracker(self) -> ExpManager:
        """`exp_manager` of the run."""
        return self._joined.manager

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Open a run unless one is open, with the configuration as hyper-parameters."""
        self._owns = ensure_run(self._table, values, self._track) or self._owns
        self._joined.join()

    @on_main_process
    @in_its_run
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Write a row; without a step, at the number of rows so far."""
        if not self._joined.is_left:
            self._owns = ensure_run(self._table, {}) or self._owns
        self._rows.write(values, step)

    @on_main_process
    @in_its_run
    def log_images(self, values: Mapping[str, Sequence[Any]], step: int | None = None, **_: Any) -> None:
        """Record images; a given step is put before their names."""
        if step is not None:
            time_step_holder.follow(step, next(iter(values), ""))
        for name, images in values.items():
            for number, image in enumerate(images):
                file = f"{name}_{number}" if step is None else f"{step}-{name}_{number}"
                ImgRecorder.save(file, image, add_timestamp=step is None)

    @on_main_process
    @in_its_run
    def finish(self) -> None:
        """End the run if the tracker opened it."""
        if self._owns:
            exp_manager.close()
