"""Database of an experiment.

An experiment is an item instead of a plain folder if `task_table_name`, `data_root` or `rla_config` is
given, or if there is an `rla_config.yaml` in the launcher's folder. If the working folder is in the same
git repository, that file may also be in a folder above, up to the repository's root, where
`rla_client.init` and `rla ls` find it, too. An explicit `log_dir` selects a plain folder.

The table is `task_table_name`, else the experiment's prefix and name. The database is `data_root`, else
the default of `rla_client.init`, so that a project has one database. The code is the folder of the
configuration, else that of the launcher. A home or temporary folder is not a project: in it
`rla_client.code.find_code` chooses the code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.code.find_code import is_broad
from rla_client.code.walk import VENV_MARKS
from rla_client.config.project import CONFIG_NAME, DATA_FOLDER, DATA_ROOT_VARIABLE
from rla_client.config.schema import load_config
from rla_client.launcher.options import Options
from rla_client.run.configure import names_code


@dataclass(frozen=True, slots=True)
class DatabasePlan:
    """Database and table of a run; `code_root` is None if `find_code` has to find it."""

    table: str
    data_root: Path
    config: Path | dict[str, Any]
    code_root: Path | None

    @property
    def log_used(self) -> list[str] | None:
        """Outputs in a configuration given as a dict, for a resume; None for a file, which it reads again."""
        return None if isinstance(self.config, Path) else list(load_config(self.config).log_used)


def find_database(options: Options, function_name: str, launcher: Path | None) -> DatabasePlan | None:
    """Database of a run; None for a plain folder."""
    if options.log_dir is not None:
        return None
    folder = launcher.parent if launcher is not None else Path.cwd()
    found = find_config_of(folder) if options.rla_config is None else None
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
    root = options.data_root or os.environ.get(DATA_ROOT_VARIABLE) or base / DATA_FOLDER
    table = options.task_table_name or f"{options.prefix}/{options.name or function_name}"
    unsaid = isinstance(config, dict) and not names_code(config)
    code_root = None if unsaid and is_broad(base) else base
    return DatabasePlan(table, Path(os.path.abspath(root)), config, code_root)


def find_config_of(folder: Path) -> Path | None:
    """The nearest rla_config.yaml from the launcher's `folder` upwards, within the limits above."""
    top = _top(folder)
    works_here = Path.cwd().is_relative_to(top)
    for one in (folder, *folder.parents):
        if (one / CONFIG_NAME).is_file():
            return one / CONFIG_NAME
        if one == top or not works_here or any((one / mark).exists() for mark in VENV_MARKS):
            return None
    return None


def _top(folder: Path) -> Path:
    """Root of the git repository of `folder`; the folder itself if there is none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
