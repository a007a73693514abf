"""Hugging Face's Trainer: a callback.

    trainer = Trainer(model, args, train_dataset=data, callbacks=[RLACallback()])

Rows have the Trainer's logs, with the names of its TensorBoard callback (`train/loss`, `eval/loss`), at its
global step. The arguments and the model's configuration become hyper-parameters. Completions that TRL's
trainers write (`log_completions=True`: `completions/*.parquet`) become samples of the run.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import rewrite_logs

from rla_client.adapter import Joined, in_its_run, leave_run, open_own_run, rejoin_run, write_row
from rla_client.contract.capture.wandb_distribution import is_replaced
from rla_client.contract.errors import RlaError
from rla_client.log_row import log_samples
from rla_client.manager import exp_manager
from rla_client.run.run import Run
from rla_client.samples.completion_tables import (
    GENERATION,
    TrlTables,
    read_parquet,
    step_of_name,
    step_of_row,
    trl_rows,
)
from rla_client.stream.clock import time_step_holder

__all__ = ["RLACallback"]
CHECKPOINTS = "hf_checkpoints"  # custom data: folders that the Trainer wrote
COMPLETIONS = "completions"  # below the output folder


class RLACallback(TrainerCallback):
    """Writes rows, hyper-parameters and paths of checkpoints, on the main process only.

    The Trainer writes the checkpoints; with `output_dir=exp_manager.checkpoint_dir` they are part of the run.
    In any case, `exp_manager.get_custom_data("hf_checkpoints")` of the run has their paths.

    Args:
        task_table_name: table, if the callback opens the run; by default the name of `output_dir`.
        track: arguments that become part of such a run's index, e.g. `["seed", "learning_rate"]`.
    """

    def __init__(self, task_table_name: str | None = None, track: Sequence[str] = ()) -> None:
        self._table, self._track = task_table_name, track
        self._run: Run | None = None  # that was opened here
        self._joined = Joined()
        self._completions: Completions | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open a run unless one is open; a resumed `train` continues in the run of the previous one."""
        del control
        if not state.is_world_process_zero:
            return
        if state.global_step:
            rejoin_run()
        parameters = args.to_sanitized_dict()
        config = getattr(kwargs.get("model"), "config", None)
        if config is not None:
            parameters["model"] = config.to_dict() if hasattr(config, "to_dict") else config
        if state.trial_params is not None:
            parameters["trial"] = dict(state.trial_params)
        table = self._table or os.path.basename(os.path.abspath(args.output_dir))
        self._run = open_own_run(table, parameters, self._track) or self._run
        self._joined.join()
        # the wandb module makes samples of the table that the trainer logs to it
        self._completions = None if _reports_to_wandb(args) else Completions(args, state.global_step)
        time_step_holder.follow(state.global_step, "Trainer")

    @in_its_run
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the clock, and log the completions of the step before as samples."""
        del args, control, kwargs
        if state.is_world_process_zero:
            time_step_holder.follow(state.global_step, "Trainer")
            self._take_completions(state.global_step)

    @in_its_run
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write a row, unless the Trainer logs it to our wandb module."""
        del control, kwargs
        if not state.is_world_process_zero:
            return
        self._take_completions(state.global_step)  # an evaluation at this step would overwrite the file
        if logs and not _reports_to_wandb(args):
            write_row(rewrite_logs(logs), state.global_step)

    @in_its_run
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the folder of a checkpoint to the run's custom data."""
        del control, kwargs
        if state.is_world_process_zero and exp_manager.run is not None:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            exp_manager.add_custom_data(CHECKPOINTS, os.path.abspath(folder))
            exp_manager.save_archive()

    @in_its_run
    def _take_completions(self, step: int) -> None:
        if self._completions is not None and exp_manager.run is not None:
            self._completions.take(step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the run; as `evaluate` may follow, it ends with the process or the next `train`."""
        del args, control, kwargs
        if state.is_world_process_zero:
            self._take_completions(state.global_step)
        leave_run(self._run)


def _reports_to_wandb(args: Any) -> bool:
    """Whether the Trainer logs to a run of our wandb module."""
    reports = is_replaced() and "wandb" in (args.report_to or ())
    return reports and getattr(sys.modules["wandb"], "run", None) is not None


class Completions:
    """Files of completions that a trainer of TRL writes; each becomes a call of `log_samples`.

    Files that exist before the training belong to an earlier one and are ignored until they are rewritten.

    Args:
        args: of the trainer.
        step: at which the training begins.
    """

    def __init__(self, args: Any, step: int) -> None:
        self._folder = Path(args.output_dir, COMPLETIONS)
        weights = getattr(args, "reward_weights", None)
        self._weights = list(weights) if isinstance(weights, list | tuple) else None
        self._changed = 0
        self._known: dict[str, int] = {}
        self._step = step  # of the last look
        self._tables = TrlTables({name: getattr(args, name, None) for name in GENERATION})
        self._new(step)

    def take(self, step: int) -> None:
        """Log the new completions up to a step; damaged files are skipped with a warning."""
        for path in self._new(step):
            try:
                rows = read_parquet(path)
            except (RlaError, OSError) as error:
                logging.getLogger("rla_client").warning("completions are not kept as samples: %s", error)
                continue
            if rows:
                own = step_of_row(rows[0])
                at = own if own is not None else step_of_name(path) or step
                new, name = self._tables.new_rows(rows, at)
                if new:
                    log_samples(trl_rows(new, self._weights), step=at, name=name)

    def _new(self, step: int) -> list[Path]:
        """New or rewritten files since the last call. Without any, it stats only a few files."""
        recent = [f"completions_{number:05d}.parquet" for number in range(self._step, step + 1)]
        self._step = step
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except OSError:
            return []
        if changed != self._changed:
            self._changed, recent = changed, sorted(os.listdir(self._folder))
        new = []
        for name in recent:  # rewriting a file does not change its folder
            if name.endswith(".parquet") and (at := _mtime(self._folder / name)) != self._known.get(name, 0):
                self._known[name] = at
                new.append(self._folder / name)
        return new


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
