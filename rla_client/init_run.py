"""A run opened by one call, `rla_client.init`.

    run = rla_client.init("cartpole", config=args, track=["seed", "optimizer.lr"])
    for step in range(1000):
        rla_client.log({"loss/policy": loss, "perf/return": episode_return}, step=step)

Several runs may be open. `run.log` writes into its own, from any thread; what names no run writes into that
which its thread opened last, else into that of the process (`stream/run_scope.py`). The next `init` of a
thread ends the run before it, unless somebody still has its handle. The configuration is the nearest
`rla_config.yaml` from the working folder upwards; without one the built-in defaults hold, and
`rla_client.code.find_code` finds the code. The database lies in `data` beside the configuration, or where
`RLA_DATA_ROOT` says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.manager import ExpManager, current_data, exp_manager, open_beside
from rla_client.run.configure import names_code
from rla_client.run.current_logger import warn
from rla_client.run.parameters.config_objects import to_parameters
from rla_client.run.record.excluded_sinks import Row
from rla_client.run_handle import OpenRun
from rla_client.stream import run_scope as scopes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rla_client.run.configure import ConfigureArguments, ResumeMode


@scopes.opening()
def init(  # noqa: PLR0913 - those of `configure` are spelt out
    task_table_name: str,
    *,
    config: object = None,
    track: Iterable[str] = (),
    data_root: str | os.PathLike[str] | None = None,
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    run_id: str | None = None,
    resume: ResumeMode | None = None,
    console: bool | None = None,
    code_root: str | os.PathLike[str] | None = None,
    run_file: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    ignore_file_path: str | os.PathLike[str] | None = None,
    log_callback_fn: Callable[[Row], object] | None = None,
    is_master_node: bool = False,
    all_ranks: bool = False,
) -> OpenRun:
    """Open a run: `configure`, `set_hyper_param`, `add_record_param` and `log_files_gen` in one call.

    Args:
        task_table_name: table that collects the runs of one task.
        config: hyper-parameters: a mapping, an argparse Namespace, a dataclass, an OmegaConf, or
            any object with attributes.
        track: names of those that become part of the run's index; dotted ones reach into nested ones.
        data_root: folder of the database; default `$RLA_DATA_ROOT`, else `data` beside the configuration.
        rla_config: path or dict; default the nearest rla_config.yaml upwards, else built-in defaults.
        run_id: names this run for a later process; see `exp_manager.configure`, as the six after it.
        resume: `never`; `allow` continues the newest run of this `run_id`, or opens a new run; `must` raises
            if there is none.
        console: keep what the run prints in `console.txt`.
        code_root: root of the code to back up.
        run_file: file or files to back up beside the code.
        ignore_file_path: gitignore rules of what the code backup leaves out.
        log_callback_fn: called with each written row.
        is_master_node: this machine is the master, so the run is not replicated.
        all_ranks: see `exp_manager.log_files_gen`.

    Returns:
        The run, which has all that `exp_manager` has. `exp_manager`, `logger` and `rla_client.log` mean it
        too, in the thread that called this, and in those that have opened none. Tasks of asyncio share
        a thread: where several have a run each, use `run.log`.

    Raises:
        ArgumentError: an argument is wrong.
        ConfigError: the configuration has faults.
        KeyError: a tracked name without dot is not among the hyper-parameters.
    """
    former = current_data()
    opened = OpenRun(former.successor())
    describe(
        opened,
        task_table_name,
        config=config,
        track=track,
        data_root=data_root,
        rla_config=rla_config,
        run_id=run_id,
        resume=resume,
        console=console,
        code_root=code_root,
        run_file=run_file,
        ignore_file_path=ignore_file_path,
        log_callback_fn=log_callback_fn,
        is_master_node=is_master_node,
    )
    open_beside(former, opened._data, all_ranks=all_ranks)  # noqa: SLF001 - its own
    before = scopes.current().before
    if before is not None and before.is_of_another_task():
        warn(
            "another asyncio task of this thread has a run open: rla_client.log and logger write into the "
            "run that was opened last, whichever task calls them. Use what init() gave: run.log(...)"
        )
    return opened


def describe(  # noqa: PLR0913 - `init`'s
    manager: ExpManager,
    task_table_name: str,
    *,
    config: object = None,
    track: Iterable[str] = (),
    data_root: str | os.PathLike[str] | None = None,
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    code_root: str | os.PathLike[str] | None = None,
    start: Path | None = None,
    **further: Unpack[ConfigureArguments],
) -> None:
    """`init` without opening the run: `configure`, `set_hyper_param`, `add_record_param`.

    Args:
        manager: what is to open it.
        task_table_name: see `init`, as all others but `start`.
        config: hyper-parameters.
        track: names of those in the index.
        data_root: folder of the database.
        rla_config: path or dict.
        code_root: root of the code to back up.
        start: where a configuration is looked for and paths start from; default the working folder.
        **further: other arguments of `configure`.

    Raises:
        ArgumentError: an argument is wrong.
        ConfigError: the configuration has faults.
        KeyError: a tracked name without dot is not among the hyper-parameters.
    """
    from rla_client.config.project import DATA_FOLDER, DATA_ROOT_VARIABLE  # noqa: PLC0415 - not at import of the package

    if isinstance(track, str):
        raise ArgumentError(f"track takes a list of names, e.g. track=[{track!r}]")
    parameters = to_parameters(config)
    if start is not None:
        data_root = None if data_root is None else start / data_root
        rla_config = start / rla_config if isinstance(rla_config, str | os.PathLike) else rla_config
    source, folder = _source(rla_config, code_root, start)
    if code_root is None and isinstance(source, Mapping) and names_code(source):
        code_root = folder
    manager.configure(
        task_table_name=task_table_name,
        rla_config=source,
        data_root=data_root or os.environ.get(DATA_ROOT_VARIABLE) or folder / DATA_FOLDER,
        code_root=code_root,
        **further,
    )
    manager.set_hyper_param(**parameters)
    manager.clear_record_param()
    manager.add_record_param(track)


def default_data_root() -> Path:
    """Where `init` puts runs that are told no data root."""
    from rla_client.config.project import DATA_FOLDER, DATA_ROOT_VARIABLE  # noqa: PLC0415 - not at import of the package

    root = os.environ.get(DATA_ROOT_VARIABLE)
    return Path(root) if root else _source(None, None)[1] / DATA_FOLDER


def starts_agent() -> bool:
    """Whether `init` would start an agent where none runs.

    Raises:
        ConfigError: the configuration has faults.
    """
    from rla_client.config.schema import load_config  # noqa: PLC0415 - not at import of the package

    config = exp_manager.config or load_config(_source(None, None)[0])
    return config.agent.autostart


def _source(
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None,
    code_root: object,
    start: Path | None = None,
) -> tuple[str | os.PathLike[str] | Mapping[str, Any], Path]:
    """The configuration, and the folder beside which the database lies by default."""
    from rla_client.config.project import find_config  # noqa: PLC0415 - not at import of the package

    try:
        begin = start or Path.cwd()
        here = begin if code_root is None else Path(str(code_root)).absolute()
        if isinstance(rla_config, Mapping):
            return rla_config, here
        if rla_config is not None:
            return rla_config, Path(rla_config).absolute().parent
        found = find_config(begin)
    except FileNotFoundError as error:
        raise ArgumentError(
            "a path starts from the working folder, which is gone: change to another folder"
        ) from error
    return ({}, here) if found is None else (found, found.parent)
