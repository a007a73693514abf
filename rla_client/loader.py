"""RLA's loader of an earlier experiment."""

from __future__ import annotations

import argparse
import copy
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rla_client import logger
from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import CHECKPOINT
from rla_client.manager import ExpManager, exp_manager
from rla_client.run.run_checkpoints import CHECKPOINT_NAME, TIME_STEP_DATA
from rla_client.stream.clock import time_step_holder

_OTHER_NAMES = ("task_table_name", "data_root")
_DATE = re.compile(r"^\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2}-\d{6}")


class _Chosen:
    """An attribute that is what it was set to, else what `default` gives at the moment."""

    def __init__(self, default: Callable[[], str | None]) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, instance: object, owner: type | None = None) -> str | None:
        chosen: str | None = getattr(instance, self._name, None)
        return self._default() if chosen is None else chosen

    def __set__(self, instance: object, value: str | None) -> None:
        setattr(instance, self._name, value)


class ExperimentLoader:
    """Loads hyper-parameters, checkpoints and files of an earlier run.

    Which run: `config(…)`, else the hyper-parameters `loaded_task_name` and `loaded_date` of the
    current manager, as they are at each call. Without either, each method gives what a fresh start
    needs.

    Attributes:
        task_name: table of the run.
        load_date: its `YYYY/MM/DD/HH-MM-SS-ffffff`.
        data_root: where its database lies.
    """

    task_name = _Chosen(lambda: exp_manager.hyper_param.get("loaded_task_name"))
    load_date = _Chosen(lambda: exp_manager.hyper_param.get("loaded_date"))
    data_root = _Chosen(lambda: exp_manager.data_root)

    trust = False

    def config(
        self,
        task_name: str,
        record_date: str,
        root: str | os.PathLike[str] | None = None,
        *,
        trust: bool = False,
    ) -> None:
        """Say which run, and whether its files are trusted.

        Args:
            task_name: table.
            record_date: `YYYY/MM/DD/HH-MM-SS-ffffff`.
            root: data root; default: the current one.
            trust: load checkpoints of objects too, which runs code that these files name: only where you
                trust whoever wrote them. Tensors, arrays and plain data need no trust.
        """
        self.trust = trust
        self.task_name = task_name
        self.load_date = record_date
        self.data_root = None if root is None else os.fspath(root)

    @property
    def is_valid_config(self) -> bool:
        """Whether a run is named."""
        return bool(self.task_name) and bool(self.load_date) and self.data_root is not None

    def load(self) -> ExpManager:
        """A manager of the run.

        Raises:
            RunNotFoundError: there is no such run.
        """
        loaded: ExpManager = ExpManager.load_tester(
            str(self.load_date), str(self.task_name), self.data_root or "."
        )
        return loaded

    def import_hyper_parameters(
        self, hp_to_overwrite: Iterable[str] | None = None, sync_timestep: bool = False
    ) -> argparse.Namespace:
        """Hyper-parameters of the loaded run over the current ones.

        Secrets, which no run keeps, are the current ones; a warning names those that there are not.

        Args:
            hp_to_overwrite: names (dotted ones reach into nested dicts) whose current value wins.
            sync_timestep: also set the clock to the loaded run's last checkpoint.

        Raises:
            ArgumentError: a name that the current hyper-parameters lack.
        """
        if not self.is_valid_config:
            return argparse.Namespace(**exp_manager.hyper_param)
        loaded = self.load()
        merged = copy.deepcopy(exp_manager.hyper_param)
        merged.update(without_hidden(copy.deepcopy(loaded.hyper_param)))
        for name in hp_to_overwrite or ():
            _overwrite(merged, exp_manager.hyper_param, name)
        merged["loaded_date"] = self.load_date
        merged["loaded_task_name"] = self.task_name
        if sync_timestep:
            time_step_holder.set_time(_last_clock(loaded))
        return argparse.Namespace(**merged)

    def load_from_record_date(
        self,
        var_prefix: str | None = None,
        variable_list: Iterable[str] | None = None,
        verbose: bool = True,
        ckp_index: int | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
        *,
        trust: bool = False,
    ) -> tuple[int, Any, dict[str, Any]]:
        """A checkpoint of the loaded run.

        Args:
            var_prefix: TensorFlow: restore variables whose name begins so.
            variable_list: custom data to give back too.
            verbose: log which checkpoint it was.
            ckp_index: its time-step; None takes the newest.
            checkpoint_name: its series.
            trust: load also a file that holds objects, by running what it names; see `config`.

        Returns:
            (time-step, content, {variable: value}); `(0, {}, {})` when no run is named.

        Raises:
            NoCheckpointError: there is none.
            UntrustedCheckpointError: it holds objects, and nobody said `trust=True`.
        """
        if not self.is_valid_config:
            return 0, {}, {}
        loaded = self.load()
        loaded.dl_framework = exp_manager.dl_framework or "torch"
        loaded.new_saver(var_prefix=var_prefix)
        step, content = loaded.load_checkpoint(ckp_index, checkpoint_name, trust=trust or self.trust)
        if verbose:
            logger.info(f"loaded {checkpoint_name}_{step} of {self.task_name}/{self.load_date}")
        trusted = trust or self.trust
        values = {name: loaded.get_custom_data(name, trust=trusted) for name in variable_list or ()}
        clock = loaded.get_custom_data(TIME_STEP_DATA)
        exact = isinstance(clock, (int, float)) and int(clock) == step  # the number in the name is whole
        return clock if exact else step, content, values

    def fork_log_files(
        self,
        hp_to_overwrite: Iterable[str] | None = None,
        sync_timestep: bool = False,
        sync_hyper_param: bool = False,
    ) -> None:
        """Put the loaded run's data under the current run; CSV and TensorBoard continue in it.

        Its hyper-parameters are taken over where the current run has none.

        Args:
            hp_to_overwrite: taken for RLA's sake: the current values win, all of them.
            sync_timestep: also set the clock to the loaded run's last checkpoint.
            sync_hyper_param: taken for RLA's sake.

        Raises:
            ArgumentError: `hp_to_overwrite` is not a list of names.
            NotConfiguredError: no run is open.
        """
        del sync_hyper_param
        if isinstance(hp_to_overwrite, (str, bool)):
            raise ArgumentError(
                f"hp_to_overwrite is a list of names, got {hp_to_overwrite!r}; sync_timestep comes after it"
            )
        if not self.is_valid_config:
            return
        loaded = self.load()
        exp_manager.log_file_copy(loaded)
        exp_manager.hyper_param = {**without_hidden(loaded.hyper_param), **exp_manager.hyper_param}
        if sync_timestep:
            time_step_holder.set_time(_last_clock(loaded))


def fork_log_file_fn(
    task_name: object = None,
    record_date: object = None,
    root: object = None,
    hp_to_overwrite: Iterable[str] | None = None,
    sync_timestep: bool = False,
    sync_hyper_param: bool = False,
    **other_names: object,
) -> None:
    """Fork the log files of a run, `(task_name, record_date, root)` or `(root, task_name, record_date)`.

    The original's README and code give different orders; the record date tells which it is.

    Args:
        task_name: the table; in the other order the root.
        record_date: the record date; in the other order the table.
        root: the root; in the other order the record date.
        hp_to_overwrite: see `ExperimentLoader.fork_log_files`.
        sync_timestep: also set the clock to that run's last checkpoint.
        sync_hyper_param: see `ExperimentLoader.fork_log_files`.
        **other_names: `task_table_name`, `data_root`.

    Raises:
        ArgumentError: none of the arguments in its place is a record date.
    """
    loader = _loader_of(task_name, record_date, root, other_names)
    loader.fork_log_files(hp_to_overwrite, sync_timestep, sync_hyper_param)


def update_hyper_parameters_fn(
    task_name: object = None,
    record_date: object = None,
    root: object = None,
    hp_to_overwrite: Iterable[str] | None = None,
    sync_timestep: bool = False,
    **other_names: object,
) -> argparse.Namespace:
    """Hyper-parameters of an earlier run over the current ones, which become the current ones.

    Args:
        task_name: see `fork_log_file_fn`; both orders are taken.
        record_date: see there.
        root: see there.
        hp_to_overwrite: see `ExperimentLoader.import_hyper_parameters`.
        sync_timestep: see there.
        **other_names: see `fork_log_file_fn`.

    Raises:
        ArgumentError: none of the arguments in its place is a record date.
    """
    loader = _loader_of(task_name, record_date, root, other_names)
    merged = loader.import_hyper_parameters(hp_to_overwrite, sync_timestep)
    exp_manager.hyper_param = vars(merged).copy()
    return merged


def _loader_of(first: object, second: object, third: object, other_names: dict[str, Any]) -> ExperimentLoader:
    """A loader of the run that the arguments name, in whichever order and by whichever names."""
    for other in other_names:
        if other not in _OTHER_NAMES:
            raise TypeError(
                f"got an unexpected argument {other!r}; there are task_name, record_date and root"
            )
    if other_names:
        first = other_names.get("task_table_name", first)
        third = other_names.get("data_root", third)
    root, table, date = _in_order(first, second, third)
    loader = ExperimentLoader()
    loader.config(table, date, root)
    return loader


def _last_clock(loaded: ExpManager) -> int | float:
    """The clock of a run at its last checkpoint; where that is not known, of its last row, else 0."""
    clock = loaded.get_custom_data(TIME_STEP_DATA)
    if clock is None:
        from rla_client.checkpoint.listing import list_checkpoints  # noqa: PLC0415 - imports torch's parts

        found = list_checkpoints(Path(loaded.folder_of(CHECKPOINT)), CHECKPOINT_NAME)
        clock = found[-1][0] if found else loaded.last_time_step
    return clock if isinstance(clock, (int, float)) else 0


def _in_order(first: Any, second: Any, third: Any) -> tuple[str | None, str, str]:  # noqa: ANN401
    if isinstance(second, str) and _DATE.match(second):
        return (None if third is None else os.fspath(third)), str(first), second
    if isinstance(third, str) and _DATE.match(third):
        return os.fspath(first), str(second), third
    raise ArgumentError(
        "give (task_name, record_date, root) or (root, task_name, record_date); a record date looks "
        f"like 2026/11/21/09-30-01-123456. Got {(first, second, third)!r}"
    )


def without_hidden(stored: dict[str, Any]) -> dict[str, Any]:
    """Stored hyper-parameters with the current values of secrets; warns of those that there are not."""
    from rla_client.code.restored_secrets import taken_over  # noqa: PLC0415 - not at import of the package

    found, lacking = taken_over(stored, exp_manager.hyper_param)
    if lacking:
        logger.warn(f"hyper-parameters of the loaded run are {lacking}")
    return found


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
        raise ArgumentError(
            f"hp_to_overwrite names {name!r}, which the current hyper-parameters lack"
        ) from error


exp_loader = experimental_loader = ExperimentLoader()
