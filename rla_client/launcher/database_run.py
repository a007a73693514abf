"""Run of an experiment as an item of a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rla_client import logger
from rla_client.contract.run_index import RunIndex
from rla_client.launcher.experiment_database import DatabasePlan
from rla_client.launcher.experiment_folder import Folders
from rla_client.launcher.item_place import ItemPlace, item_index
from rla_client.launcher.outputs import Outputs
from rla_client.launcher.run_id import RunName
from rla_client.launcher.wanted_call import Relaunch
from rla_client.manager import ExpManager, current_data, exp_manager
from rla_client.run.item import ItemFolders
from rla_client.run.rank_meeting import publish
from rla_client.run.record.excluded_sinks import Row
from rla_client.run.run import Run

ITEM_TEXT_NAME = "log.txt"  # an item's files keep RLA's names


def open_item(
    plan: DatabasePlan, x_axis: str, parameters: Mapping[str, Any], tracked: Iterable[str], name: RunName
) -> tuple[Outputs, Folders]:
    """Open a new item with these parameters; the `tracked` ones are part of its index.

    The process's `exp_manager` opens the item, so that the experiment's figures and checkpoints go there
    too; an experiment inside another's item gets a manager of its own. If `name` asks for it, the item
    continues from its checkpoints, as `exp_manager` does; `run_id.py` continues it from its snapshots.

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
    place = ItemPlace(str(plan.data_root), plan.table, item_index(log))
    return item.outputs(place, log, x_axis, None, fresh=True), Folders(log, code, snapshots, plan.data_root)


class _ItemRun:
    """The run of an item, opened and closed by its manager."""

    def __init__(
        self, table: str, config: Path | dict[str, Any], root: str | Path, code_root: Path | None
    ) -> None:
        # with the state of the process's `exp_manager`, unless that has a run open
        self.manager = ExpManager(current_data()) if exp_manager.run is None else ExpManager()
        self.manager.configure(table, config, root, code_root=code_root, log_callback_fn=self._pass_on)
        self.first: Run | None = None
        self._on_row: Callable[[Row], None] | None = None

    def _pass_on(self, row: Row) -> None:
        if self._on_row is not None:
            self._on_row(row)

    def outputs(
        self, place: ItemPlace, log_dir: Path, x_axis: str, keep_rows: int | None, *, fresh: bool
    ) -> Outputs:
        """The item's outputs: at the first call of the open run, later of a continued one."""

        def opener(on_row: Callable[[Row], None]) -> Run:
            self._on_row = on_row
            run, self.first = self.first, None
            if run is not None:
                return run
            index = RunIndex.parse(place.index)
            assert index is not None
            item = ItemFolders(place.data_root, place.table, index, index.opened)
            return self.manager._reopen(item)  # noqa: SLF001

        close = self.manager.close
        return Outputs(log_dir, x_axis, keep_rows, opener, ITEM_TEXT_NAME, fresh=fresh, on_close=close)


def reopen_item(
    place: ItemPlace,
    log_dir: Path,
    x_axis: str,
    keep_rows: int,
    relaunch: Relaunch,
    parameters: Mapping[str, Any],
) -> Outputs:
    """Open an existing item again, with the first `keep_rows` rows of its earlier part.

    The process's `exp_manager` opens it, as in `open_item`, with the configuration in `relaunch`.
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
