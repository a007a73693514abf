"""ExperimentLoader and the functions around it: RLA's way back to an earlier experiment."""

from __future__ import annotations

import argparse
import copy
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rla_client import logger
from rla_client.clock import time_step_holder
from rla_client.errors import ArgumentError
from rla_client.item_data import CHECKPOINT_NAME, TIME_STEP_DATA
from rla_client.manager import ExpManager, exp_manager

_DATE = re.compile(r"^\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2}-\d{6}")


class ExperimentLoader:
    """Loads hyper-parameters, checkpoints and files of an earlier run.

    Which run: `config(…)`, else the hyper-parameters `loaded_task_name` and `loaded_date` of the
    current manager. Without either, each method gives what a fresh start needs.
    """

    def __init__(self) -> None:
        self.task_name: str | None = exp_manager.hyper_param.get("loaded_task_name")
        self.load_date: str | None = exp_manager.hyper_param.get("loaded_date")
        self.data_root: str | None = exp_manager.data_root

    def config(self, task_name: str, record_date: str, root: str | os.PathLike[str] | None = None) -> None:
        """Say which run: table, `YYYY/MM/DD/HH-MM-SS-ffffff`, and data root (default: the current)."""
        self.task_name = task_name
        self.load_date = record_date
        self.data_root = exp_manager.data_root if root is None else os.fspath(root)

    @property
    def is_valid_config(self) -> bool:
        """Whether a run is named."""
        return bool(self.task_name) and bool(self.load_date) and self.data_root is not None

    def _load(self) -> ExpManager:
        loaded: ExpManager = ExpManager.load_tester(
            str(self.load_date), str(self.task_name), self.data_root or "."
        )
        return loaded

    def import_hyper_parameters(
        self, hp_to_overwrite: Iterable[str] | None = None, sync_timestep: bool = False
    ) -> argparse.Namespace:
        """Hyper-parameters of the loaded run over the current ones.

        Args:
            hp_to_overwrite: names (dotted ones reach into nested dicts) whose current value wins.
            sync_timestep: also set the clock to the loaded run's last checkpoint.

        Raises:
            ArgumentError: a name that the current hyper-parameters lack.
        """
        if not self.is_valid_config:
            return argparse.Namespace(**exp_manager.hyper_param)
        loaded = self._load()
        merged = copy.deepcopy(exp_manager.hyper_param)
        merged.update(copy.deepcopy(loaded.hyper_param))
        for name in hp_to_overwrite or ():
            _overwrite(merged, exp_manager.hyper_param, name)
        merged["loaded_date"] = self.load_date
        merged["loaded_task_name"] = self.task_name
        if sync_timestep:
            time_step_holder.set_time(loaded.get_custom_data(TIME_STEP_DATA) or 0)
        return argparse.Namespace(**merged)

    def load_from_record_date(
        self,
        var_prefix: str | None = None,
        variable_list: Iterable[str] | None = None,
        verbose: bool = True,
        ckp_index: int | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
    ) -> tuple[int, Any, dict[str, Any]]:
        """A checkpoint of the loaded run.

        Args:
            var_prefix: TensorFlow: restore variables whose name begins so.
            variable_list: custom data to give back too.
            verbose: log which checkpoint it was.
            ckp_index: its time-step; None takes the newest.
            checkpoint_name: its series.

        Returns:
            (time-step, content, {variable: value}); `(0, {}, {})` when no run is named.

        Raises:
            NoCheckpointError: there is none.
        """
        if not self.is_valid_config:
            return 0, {}, {}
        loaded = self._load()
        loaded.dl_framework = exp_manager.dl_framework or "torch"
        loaded.new_saver(var_prefix=var_prefix)
        step, content = loaded.load_checkpoint(ckp_index, checkpoint_name)
        if verbose:
            logger.info(f"loaded {checkpoint_name}_{step} of {self.task_name}/{self.load_date}")
        values = {name: loaded.get_custom_data(name) for name in variable_list or ()}
        if ckp_index is None:
            step = loaded.get_custom_data(TIME_STEP_DATA) or step
        return step, content, values

    def fork_log_files(self) -> None:
        """Put the loaded run's data under the current run; CSV and TensorBoard go on in it.

        Its hyper-parameters are taken over where the current run has none.

        Raises:
            NotConfiguredError: no run is open.
        """
        if not self.is_valid_config:
            return
        loaded = self._load()
        exp_manager.log_file_copy(loaded)
        exp_manager.hyper_param = {**loaded.hyper_param, **exp_manager.hyper_param}


def fork_log_file_fn(first: str, second: str, third: str | None = None) -> None:
    """Fork the log files of a run, `(task_name, record_date, root)` or `(root, task_name, record_date)`.

    The original's README and code give different orders; the record date tells which it is.

    Raises:
        ArgumentError: none of the arguments in its place is a record date.
    """
    root, table, date = _in_order(first, second, third)
    loader = ExperimentLoader()
    loader.config(table, date, root)
    loader.fork_log_files()


def update_hyper_parameters_fn(
    first: Any,  # noqa: ANN401
    second: Any,  # noqa: ANN401
    third: Any = None,  # noqa: ANN401
    hp_to_overwrite: Iterable[str] | None = None,
    sync_timestep: bool = False,
) -> argparse.Namespace:
    """Hyper-parameters of an earlier run over the current ones, which become the current ones.

    Args:
        first: the table, or the root.
        second: the record date, or the table.
        third: the root, or the record date.
        hp_to_overwrite: see `ExperimentLoader.import_hyper_parameters`.
        sync_timestep: see there.

    Raises:
        ArgumentError: none of the arguments in its place is a record date.
    """
    root, table, date = _in_order(first, second, third)
    loader = ExperimentLoader()
    loader.config(table, date, root)
    merged = loader.import_hyper_parameters(hp_to_overwrite, sync_timestep)
    exp_manager.hyper_param = vars(merged).copy()
    return merged


def _in_order(first: Any, second: Any, third: Any) -> tuple[str | None, str, str]:  # noqa: ANN401
    if isinstance(second, str) and _DATE.match(second):
        return (None if third is None else os.fspath(third)), str(first), second
    if isinstance(third, str) and _DATE.match(third):
        return os.fspath(first), str(second), third
    message = (
        "give (task_name, record_date, root) or (root, task_name, record_date); a record date looks "
        f"like 2026/11/21/09-30-01-123456. Got {(first, second, third)!r}"
    )
    raise ArgumentError(message)


def _overwrite(target: dict[str, Any], source: Mapping[str, Any], name: str) -> None:
    if name in source:
        target[name] = copy.deepcopy(source[name])
        return
    *parents, last = name.split(".")
    inner, value = target, source
    try:
        for part in parents:
            value = value[part]
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        inner[last] = copy.deepcopy(value[last])
    except (KeyError, TypeError) as error:
        message = f"hp_to_overwrite names {name!r}, which the current hyper-parameters lack"
        raise ArgumentError(message) from error


exp_loader = experimental_loader = ExperimentLoader()
