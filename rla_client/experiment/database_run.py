"""An experiment as an item of an RLA database instead of a plain folder.

That happens when `task_table_name`, `data_root` or `rla_config` is given, or when an
`rla_config.yaml` lies beside the launcher. An explicit `log_dir` asks for a plain folder. The
table is `task_table_name`, else the experiment's prefix and name; the database is `data_root`,
else the folder of rla_config.yaml.

Snapshots lie in checkpoint/, the code archive in code/, the rest in log/ of the item.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.errors import LaunchError
from rla_client.experiment.directories import Folders
from rla_client.experiment.options import Options
from rla_client.experiment.outputs import Outputs

CONFIG_NAME = "rla_config.yaml"


@dataclass(frozen=True, slots=True)
class DatabasePlan:
    """Which database and table a run goes into."""

    table: str
    data_root: Path
    config: Path | dict[str, Any]
    code_root: Path


def find_database(options: Options, function_name: str, launcher: Path | None) -> DatabasePlan | None:
    """The database that a run belongs to; None for a plain folder."""
    if options.log_dir is not None:
        return None
    folder = launcher.parent if launcher is not None else Path.cwd()
    found = _find_config(folder) if options.rla_config is None else None
    asked = options.task_table_name or options.data_root or options.rla_config
    if found is None and not asked:
        return None
    config: Path | dict[str, Any]
    if isinstance(options.rla_config, Mapping):
        config = dict(options.rla_config)
    elif options.rla_config is not None:
        config = Path(options.rla_config)
    else:
        config = found or {}
    base = config.absolute().parent if isinstance(config, Path) else folder
    root = Path(os.path.abspath(options.data_root)) if options.data_root is not None else base
    table = options.task_table_name or f"{options.prefix}/{options.name or function_name}"
    return DatabasePlan(table, root, config, base)


def _find_config(folder: Path) -> Path | None:
    beside = folder / CONFIG_NAME
    return beside if beside.is_file() else None


def open_item(
    plan: DatabasePlan, x_axis: str, parameters: Mapping[str, Any], tracked: Iterable[str]
) -> tuple[Outputs, Folders]:
    """Open a new item with these parameters; the `tracked` ones are part of its index.

    The process's `exp_manager` opens it, so that the experiment's figures and checkpoints go there
    too; an experiment inside another's item gets a manager of its own.

    Raises:
        ArgumentError, ConfigError: the table, the database or its configuration cannot be used.
    """
    manager = exp_manager if exp_manager.run is None else ExpManager()

    def open_first(on_row: Callable[[Row], None]) -> Run:
        manager.configure(
            plan.table, plan.config, plan.data_root, code_root=plan.code_root, log_callback_fn=on_row
        )
        manager.set_hyper_param(**parameters)
        manager.clear_record_param()
        manager.add_record_param(tracked)
        manager.log_files_gen()
        manager.clear_record_param()
        assert manager.run is not None
        return manager.run

    return _outputs_of(manager, plan, x_axis, open_first)


def _outputs_of(
    manager: ExpManager, plan: DatabasePlan, x_axis: str, open_first: Opener
) -> tuple[Outputs, Folders]:
    opened: list[Run] = []
    source = plan.config

    def opener(on_row: Callable[[Row], None]) -> Run:
        if not opened:
            opened.append(open_first(on_row))
        else:
            opened.append(item_opener(log_dir(), plan.table, source)(on_row))
        return opened[-1]

    def log_dir() -> Path:
        return Path(manager.log_dir or ".")

    former = logger.get_current()
    first = opener_first(opener)
    logger.set_current(former)
    folders = Folders(
        log_dir(),
        Path(manager.code_dir or "."),
        Path(manager.checkpoint_dir or "."),
        plan.data_root,
    )
    return Outputs(folders.log, x_axis, None, first, TEXT_NAME), folders
