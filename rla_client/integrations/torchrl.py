"""TorchRL: a logger.

logger = RLALogger("cartpole-ppo")  # was: CSVLogger("cartpole-ppo")
logger.log_scalar("reward", 1.0, step=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchrl.record.loggers import Logger

from rla_client import logger
from rla_client.adapter import Joined, add_scalar, in_its_run, leave_run, open_own_run
from rla_client.manager import ExpManager, exp_manager
from rla_client.media.video_recorder import VideoRecorder
from rla_client.run.parameters.config_objects import to_parameters
from rla_client.run.record.summary_writer import tbx_writer
from rla_client.stream.clock import time_step_holder

__all__ = ["RLALogger"]


class RLALogger(Logger):
    """Writes scalars of one step as a row, videos through the agent, histograms and texts to TensorBoard.

    Args:
        exp_name: table, if the logger opens the run.
        log_dir: without effect; the attribute is the run's log folder.
        config: hyper-parameters.
        track: names of hyper-parameters that become part of such a run's index.
    """

    def __init__(
        self, exp_name: str, log_dir: str | None = None, *, config: Any = None, track: Sequence[str] = ()
    ) -> None:
        del log_dir
        self._run = open_own_run(exp_name, to_parameters(config), track)
        self._joined = Joined()
        self._joined.join()
        super().__init__(exp_name, str(exp_manager.log_dir or ""))

    def _create_experiment(self) -> ExpManager:
        return self._joined.manager

    def shutdown(self, timeout: float | None = None) -> None:
        """Write the last row. The run ends with the process, or when a later logger opens one."""
        self.flush(timeout)
        leave_run(self._run)

    @in_its_run
    def flush(self, timeout: float | None = None) -> None:
        """Write the pending row."""
        del timeout
        logger.get_current().write_scalars()

    @in_its_run
    def log_scalar(self, name: str, value: Any, step: int | None = None) -> None:
        """Add a value to the row of a step, by default the clock's."""
        add_scalar(name, value, _step(step))

    @in_its_run
    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Record a video of shape (T, C, H, W), or the first of (N, T, C, H, W)."""
        frames = video[0] if video.ndim == 5 else video  # noqa: PLR2004 - a batch of videos
        time_step_holder.follow(_step(step), name)  # part of the file's name
        VideoRecorder.save(name, frames, fps=float(kwargs.get("fps") or 6))

    @in_its_run
    def log_hparams(self, cfg: Any) -> None:
        """Add hyper-parameters: a dict or an OmegaConf."""
        exp_manager.add_hyper_param(to_parameters(cfg))

    @in_its_run
    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Send a histogram to TensorBoard; `step` and `bins` as in TorchRL's TensorboardLogger."""
        if "tensorboard" in logger.get_current().sinks:
            tbx_writer(logger.get_current()).add_histogram(
                name, data, _step(kwargs.pop("step", None)), **kwargs
            )

    @in_its_run
    def log_str(self, name: str, value: str, step: int | None = None) -> None:
        """Send a text to TensorBoard."""
        if "tensorboard" in logger.get_current().sinks:
            tbx_writer(logger.get_current()).add_text(name, value, _step(step))

    def __repr__(self) -> str:
        return f"RLALogger({self.exp_name!r}, {self.log_dir!r})"


def _step(step: int | None) -> int:
    return int(time_step_holder.get_time() if step is None else step)
