"""The database that an experiment is an item of.

An experiment is an item instead of a plain folder when `task_table_name`, `data_root` or `rla_config` is
given, or when an `rla_config.yaml` lies beside the launcher. It may also lie above, up to the top of the git
repository, for who works there: `rla_client.init` and `rla ls` search upwards from the working folder. An
explicit `log_dir` asks for a plain folder. The table is `task_table_name`, else the experiment's prefix and
name; the database is `data_root`, else where `rla_client.init` puts it: so a project has one database, which
`rla ls` finds, and what `rla init` ignores for git is all of it. The code is that beside the configuration,
without one that beside the launcher. A home folder or one for temporary files is not a project: there
`rla_client.code.find_code` finds it.
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
from rla_client.contract.layout import LOG
from rla_client.contract.run_index import RunIndex
from rla_client.launcher.options import Options
from rla_client.run.configure import names_code


@dataclass(frozen=True, slots=True)
class DatabasePlan:
    """Which database and table a run goes into; `code_root` is None where the code is to be found."""

    table: str
    data_root: Path
    config: Path | dict[str, Any]
    code_root: Path | None

    @property
    def log_used(self) -> list[str] | None:
        """Outputs that a dict asks for, all of it that a resume needs; a file is read again then."""
        return None if isinstance(self.config, Path) else list(load_config(self.config).log_used)


def find_database(options: Options, function_name: str, launcher: Path | None) -> DatabasePlan | None:
    """The database that a run belongs to; None for a plain folder."""
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
    """The nearest rla_config.yaml from the launcher's `folder` upwards, as far as it may be (see above)."""
    top = _top(folder)
    works_here = Path.cwd().is_relative_to(top)
    for one in (folder, *folder.parents):
        if (one / CONFIG_NAME).is_file():
            return one / CONFIG_NAME
        if one == top or not works_here or any((one / mark).exists() for mark in VENV_MARKS):
            return None
    return None


def _top(folder: Path) -> Path:
    """Top of the git repository around `folder`; the folder itself where there is none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """Which item of which database: enough to open it again."""

    data_root: str
    table: str
    index: str

    @classmethod
    def of(cls, log_dir: Path) -> ItemPlace | None:
        """The item whose log folder this is; None for a plain folder."""
        parts = log_dir.absolute().parts
        index = item_index(log_dir)
        if RunIndex.parse(index) is None or LOG not in parts[:-5]:
            return None
        at = len(parts) - 1 - parts[::-1].index(LOG, 5)
        return cls(str(Path(*parts[:at])), "/".join(parts[at + 1 : -4]), index)


def item_index(log_dir: Path) -> str:
    """The index of the item whose log folder this is."""
    return "/".join(log_dir.absolute().parts[-4:])
