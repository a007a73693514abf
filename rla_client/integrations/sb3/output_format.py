"""Output format of SB3's logger that writes rows."""

from __future__ import annotations

import weakref
from typing import Any

from rla_client import logger
from rla_client.adapter import Joined, join_or_open, open_for_adapter, script_name
from rla_client.contract.errors import extra
from rla_client.contract.layout import SINKS
from rla_client.integrations.sb3.run_owners import models_by_run, runs_by_model
from rla_client.manager import ExpManager, exp_manager
from rla_client.run_handle import OpenRun

with extra("sb3", "rla_client.integrations.sb3"):
    import numpy as np
    import torch
    from stable_baselines3.common.logger import Figure, HParam, Image, KVWriter, Video

    from rla_client.run.record.summary_writer import tbx_writer

_MEDIA = Video | Figure | Image | HParam  # types that SB3's CSV refuses


class RLAOutputFormat(KVWriter):
    """Writes each dump of SB3 as a row at SB3's step; media go to TensorBoard.

    The clock follows SB3's number of time-steps. Rows are not printed, as SB3 prints them itself. If no run
    is open, or the open one was opened for another model, the first row opens a run in a table with the
    script's name.
    """

    def __init__(self) -> None:
        self._joined = Joined()
        self._wrote = False
        self._own: OpenRun | None = None  # a run that stays open as long as this object exists

    def join(self) -> ExpManager:
        """Write into the current run from now on; returns its `exp_manager`."""
        self._wrote = True
        self._joined.join()
        return self._joined.manager

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        """See SB3's `KVWriter`."""
        if not self._wrote:
            self._begin()
        with self._joined.active():
            self._write(key_values, key_excluded, step)

    def _begin(self) -> None:
        """Join the run of the model that uses this format, or else the script's run, or a new one."""
        for model, held in list(runs_by_model.items()):
            if held.run is not None and self in model.logger.output_formats:
                with held.active():
                    self.join()
                return
        opens = open_for_adapter if exp_manager.run in models_by_run else join_or_open
        self._own = opens(script_name(), {})
        if self._own is not None and self._own.run is not None:
            models_by_run[self._own.run] = weakref.ref(self)
        self.join()

    def _write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int) -> None:
        current = logger.get_current()
        with current.lock:
            current.clock.put(step)
            for key, value in key_values.items():
                hidden = {name for name in key_excluded.get(key) or () if name in SINKS}
                number = _number(value)
                if number is None:
                    if "tensorboard" not in hidden:
                        _show(current, key, value, step)
                    hidden |= {"tensorboard"}
                if not isinstance(value, _MEDIA):
                    cell = number if number is not None or value is None else str(value)
                    current.record(key, cell, hidden | {"stdout"})
            current.dump()

    def close(self) -> None:
        """Nothing to do: the run continues."""


def _number(value: Any) -> float | int | None:
    """A number, where float32 has the digits of SB3's CSV; None for other values."""
    if isinstance(value, (np.ndarray, torch.Tensor)) and np.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, (np.float32, np.float16)):
        return float(str(value))
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (bool, int, float)) else None


def _show(current: Any, key: str, value: Any, step: int) -> None:
    """Send a value that is not a number to TensorBoard."""
    if isinstance(value, HParam) and current.take_parameters is not None:
        current.take_parameters(value.hparam_dict)
    if "tensorboard" not in current.sinks or current.folder is None:
        return
    writer = tbx_writer(current)
    if isinstance(value, str):
        writer.add_text(key, value, step)
    elif isinstance(value, Video):
        writer.add_video(key, value.frames, step, value.fps)
    elif isinstance(value, Figure):
        writer.add_figure(key, value.figure, step, close=value.close)
    elif isinstance(value, Image):
        writer.add_image(key, value.image, step, dataformats=value.dataformats)
    elif isinstance(value, HParam):
        writer.name_hparams(value.hparam_dict, value.metric_dict, step)
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        array = value.detach().cpu().double().numpy() if isinstance(value, torch.Tensor) else value
        if array.dtype.kind in "biuf" and np.isfinite(array).any():
            writer.add_histogram(key, array[np.isfinite(array)], step)
