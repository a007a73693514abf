"""An experiment as an item of an RLA database instead of a plain folder.

That happens when `task_table_name`, `data_root` or `rla_config` is given, or when an
`rla_config.yaml` lies beside the launcher. It may also lie above, up to the top of the git
repository, for who works there: `rla_client.init` and `rla ls` search upwards from the working folder.
An explicit `log_dir` asks for a plain folder. The table is `task_table_name`, else the experiment's prefix
and name; the database is `data_root`, else where `rla_client.init` puts it: `$RLA_DATA_ROOT`, or `data`
beside rla_config.yaml. A project has one database then, which `rla ls` finds, and what `rla init`
ignores for git is all of it.

The code is that beside the configuration, without one that beside the launcher. A home folder or one for
temporary files is not a project: there `rla_client.code.select` finds it, as for `rla_client.init`.

Snapshots lie in checkpoint/, the code archive in code/, the rest in log/ of the item.

With RLA_RUN_ID and RLA_RESUME an item continues from its last snapshot when its program starts again.
`exp_manager` continues by checkpoints, of which an experiment that has a runner takes none. So a call first
looks itself for the unfinished item of its run_id, and continues in it as after `rla resume`: by the launch
record in its log folder. It leaves to `exp_manager` (a new item, the error of `must`, or the item from its
checkpoint or its beginning) what has no launch record, no snapshot, or checkpoints of `exp_manager`'s own.

A program may make several calls. The first has the run_id itself, the n-th `<run_id>:<n>`, also when the
program starts again. Calls inside of another experiment, or while `exp_manager` has a run open, have none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rla_client import logger
from rla_client.checkpoint.files import list_checkpoints
from rla_client.code.select import VENV_MARKS, is_broad
from rla_client.config.schema import CONFIG_NAME, DATA_FOLDER, DATA_ROOT_VARIABLE, load_config
from rla_client.contract.errors import AgentNotRunningError, LaunchError, NotAFileError
from rla_client.contract.layout import LOG, RunIndex
from rla_client.launcher.context import Folders, Options, settle
from rla_client.launcher.launch import read_launch
from rla_client.launcher.outputs import Outputs
from rla_client.launcher.relaunch import Relaunch, relaunch_of
from rla_client.launcher.snapshotter import find_snapshot
from rla_client.manager import ExpManager, exp_manager
from rla_client.run.data import CHECKPOINT_NAME
from rla_client.run.item import Item
from rla_client.run.recording import Row
from rla_client.run.run import Run
from rla_client.run.setup import named_run, names_code
from rla_client.run.start import publish

ITEM_TEXT_NAME = "log.txt"  # an item's files keep RLA's names


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


class RunName(NamedTuple):
    """`run_id` of a call, None without one, and `resume` as `configure` takes it."""

    run_id: str | None = None
    resume: str = "never"


def run_name(call: int) -> RunName:
    """The name of a program's top-level call, counted from 1.

    Raises:
        ArgumentError: RLA_RESUME says nothing that there is, or `must` without RLA_RUN_ID.
    """
    run_id, resume = named_run()
    return RunName(run_id if run_id is None or call == 1 else f"{run_id}:{call}", resume)


def open_item(
    plan: DatabasePlan, x_axis: str, parameters: Mapping[str, Any], tracked: Iterable[str], name: RunName
) -> tuple[Outputs, Folders]:
    """Open a new item with these parameters; the `tracked` ones are part of its index.

    The process's `exp_manager` opens it, so that the experiment's figures and checkpoints go there
    too; an experiment inside another's item gets a manager of its own. With a `name` that says so it
    continues as `exp_manager` does, by its checkpoints; by its snapshots: `run_id`.

    Raises:
        ArgumentError, ConfigError: the table, the database or its configuration cannot be used.
    """
    item = _ItemRun(plan.table, plan.config, plan.data_root, plan.code_root)
    manager = item.manager
    manager.run_id, manager.resume_mode = name
    manager.set_hyper_param(**parameters)
    manager.clear_record_param()
    manager.add_record_param(list(tracked))
    former = logger.get_current()
    manager.log_files_gen()
    manager.clear_record_param()
    logger.set_current(former)
    log, code, snapshots = (
        Path(str(path)) for path in (manager.log_dir, manager.code_dir, manager.checkpoint_dir)
    )
    assert manager.run is not None
    item.first = manager.run
    place = ItemPlace(str(plan.data_root), plan.table, _index(log))
    return item.outputs(place, log, x_axis, None, fresh=True), Folders(log, code, snapshots, plan.data_root)


class _ItemRun:
    """The run of an item: its manager, and how outputs open, count the rows of and close it."""

    def __init__(
        self, table: str, config: Path | dict[str, Any], root: str | Path, code_root: Path | None
    ) -> None:
        self.manager = exp_manager if exp_manager.run is None else ExpManager()
        self.manager.configure(table, config, root, code_root=code_root, log_callback_fn=self._pass_on)
        self.first: Run | None = None
        self._on_row: Callable[[Row], None] | None = None

    def _pass_on(self, row: Row) -> None:
        if self._on_row is not None:
            self._on_row(row)

    def outputs(
        self, place: ItemPlace, log_dir: Path, x_axis: str, keep_rows: int | None, *, fresh: bool
    ) -> Outputs:
        """Its outputs: of the run that is open already, the first time, else of a continued one."""

        def opener(on_row: Callable[[Row], None]) -> Run:
            self._on_row = on_row
            run, self.first = self.first, None
            if run is not None:
                return run
            index = RunIndex.parse(place.index)
            assert index is not None
            item = Item(place.data_root, place.table, index, index.opened)
            return self.manager._reopen(item)  # noqa: SLF001

        close = self.manager.close
        return Outputs(log_dir, x_axis, keep_rows, opener, ITEM_TEXT_NAME, fresh=fresh, on_close=close)


def find_unfinished_call(name: RunName, function: str, plan: DatabasePlan) -> Relaunch | None:
    """How `function` continues its unfinished item of this name; None where that is exp_manager's to decide.

    Raises:
        StillWritingError, LaunchError: a living process writes it; or it is another function's.
    """
    if name.run_id is None or name.resume == "never":
        return None
    from rla_client.run.find import find_here  # noqa: PLC0415 - rarely needed

    autostart = load_config(plan.config).agent.autostart
    item, _late = find_here(str(plan.data_root), plan.table, name.run_id, autostart=autostart, ends_s=0.0)
    if item is None:
        return None
    folder = Path(item.folder(LOG))
    try:
        settle(folder)  # the agent may still have the snapshot
    except AgentNotRunningError:
        return None
    try:
        launch, parameters = read_launch(folder)
        snapshots = Path(os.path.normpath(folder / launch.snapshot_dir))
        find_snapshot(snapshots)
    except (LaunchError, FileNotFoundError, NotAFileError):
        return None
    if launch.function != function:
        raise LaunchError(
            f"the unfinished run {name.run_id!r} in {folder} was started by {launch.function}, so {function} "
            "cannot continue it: start the program as it was first, or give another RLA_RUN_ID"
        )
    if list_checkpoints(snapshots, CHECKPOINT_NAME, pruned=True):
        return None
    return relaunch_of(launch, folder, snapshots, parameters, "last")


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
        index = _index(log_dir)
        if RunIndex.parse(index) is None or LOG not in parts[:-5]:
            return None
        at = len(parts) - 1 - parts[::-1].index(LOG, 5)
        return cls(str(Path(*parts[:at])), "/".join(parts[at + 1 : -4]), index)


def reopen_item(
    place: ItemPlace,
    log_dir: Path,
    x_axis: str,
    keep_rows: int,
    relaunch: Relaunch,
    parameters: Mapping[str, Any],
) -> Outputs:
    """Open an existing item again, with the first `keep_rows` rows of its earlier part.

    The process's `exp_manager` has it, as in `open_item`, with the configuration that `relaunch` records.
    """
    settings: Path | dict[str, Any] = {} if relaunch.log_used is None else {"LOG_USED": relaunch.log_used}
    settings, code_root = (settings, Path.cwd()) if relaunch.config is None else (Path(relaunch.config), None)
    item = _ItemRun(place.table, settings, place.data_root, code_root)
    manager = item.manager
    manager.run_id, manager.resume_mode = RunName()  # the item has its own
    manager.set_hyper_param(**parameters)
    outputs = item.outputs(place, log_dir, x_axis, keep_rows, fresh=False)
    if manager.run is not None and manager.config is not None:  # ranks above 0 wait for it
        publish(place.data_root, place.table, manager.run.opening, manager.config.log_used)
    return outputs


def _index(log_dir: Path) -> str:
    return "/".join(log_dir.absolute().parts[-4:])
