"""rsl_rl: a log writer that its runners make by name.

    train_cfg["logger"] = {"class_name": "rla_client.integrations.rsl_rl:RLALogWriter"}

The run's time-step is the iteration. The configuration becomes hyper-parameters. Files that the runner saves
are copied to the run, models to its checkpoints.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rsl_rl.utils.log_writer import LogWriter

import rla_client.run.record.summary_writer  # noqa: F401 - loaded here, so that `add_scalar` does not wait for it
from rla_client import logger
from rla_client.adapter import Joined, add_scalar, ensure_run, in_its_run
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS
from rla_client.manager import exp_manager
from rla_client.run.current_logger import warn
from rla_client.run.parameters.config_objects import to_parameters

__all__ = ["RLALogWriter"]


class RLALogWriter(LogWriter):
    """Writes the scalars of an iteration as one row, under the tags of rsl_rl.

    rsl_rl's two `…/time` scalars repeat others over seconds. They are left out, as each row has a timestamp.

    Args:
        log_dir: rsl_rl's folder; the name of its parent folder is the default table.
        task_table_name: table, if the writer opens the run.
        track: names of the configuration that become part of such a run's index, e.g. `["seed"]`.
        save_models: copy the models that the runner saves to the run's checkpoints.
    """

    def __init__(
        self,
        log_dir: str,
        task_table_name: str | None = None,
        track: tuple[str, ...] = (),
        save_models: bool = True,
    ) -> None:
        self._table = task_table_name or Path(log_dir).absolute().parent.name or "rsl_rl"
        self._track, self._save_models = track, save_models
        self._kept: set[Path] = set()
        self._owns = False
        self._joined = Joined()

    def store_config(self, env_cfg: Any, train_cfg: dict[str, Any]) -> None:
        """Open a run unless one is open, with both configurations as hyper-parameters."""
        env = env_cfg.to_dict() if hasattr(env_cfg, "to_dict") else to_parameters(env_cfg)
        self._owns = ensure_run(self._table, {**train_cfg, "env": env}, self._track)
        self._joined.join()

    @in_its_run
    def add_scalar(self, tag: str, scalar_value: Any, global_step: int, *_: Any, **__: Any) -> None:
        """Add a value to the iteration's row."""
        if not tag.endswith("/time"):
            add_scalar(tag, scalar_value, global_step)

    def save_model(self, model_path: str, it: int) -> None:
        """Copy a model to the run's checkpoints."""
        del it
        if self._save_models:
            self._keep(CHECKPOINT, Path(model_path))

    def save_file(self, path: str) -> None:
        """Copy a file to the run's results."""
        self._keep(OTHER_RESULTS, Path(path))

    def save_video(self, video: Path, it: int) -> None:
        """Copy a video to the run's results, once."""
        del it
        if video not in self._kept:
            self._keep(OTHER_RESULTS, video)

    @in_its_run
    def _keep(self, kind: str, path: Path) -> None:
        if exp_manager.run is None or exp_manager.run.outbox is None:
            return
        try:
            with replacing(Path(exp_manager.folder_of(kind)) / path.name, durable=False) as partial:
                shutil.copyfile(path, partial)
            self._kept.add(path)
        except OSError as error:  # such as a full disk, which must not stop the training
            warn(f"{path} was not copied: {error}")

    @in_its_run
    def stop(self) -> None:
        """Write the last row, and end the run if the writer opened it."""
        logger.get_current().write_scalars()
        if self._owns:
            exp_manager.close()
