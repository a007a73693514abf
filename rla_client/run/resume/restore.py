"""Restoration of a run's state from a checkpoint.

The state is clock, moving averages, custom data and parameters.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.layout import CHECKPOINT, LOG, RESUME_FOLDER
from rla_client.contract.run_file import RUN_FILE
from rla_client.run.current_logger import backup, get_current, warn
from rla_client.run.item import ItemFolders
from rla_client.run.parameters.parameter_changes import tell_changes
from rla_client.run.parameters.run_parameters import store_changes
from rla_client.run.record.run_logger import WARN
from rla_client.run.run_checkpoints import TIME_STEP_DATA
from rla_client.run.run_data import RunData
from rla_client.run.state.custom_data import join_arrays, open_own, unopened
from rla_client.run.state.resume_state import arrays_of, read_resume_arrays

if TYPE_CHECKING:
    from rla_client.run.configure import RunSetup


def take_parameters(setup: RunSetup, item: ItemFolders) -> None:
    """Where none are given, take those of an earlier run, but for secrets, which it does not keep."""
    if setup.hyper_param:
        return
    from rla_client.code.restored_secrets import taken_over  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.find_run import read_run  # noqa: PLC0415

    setup.hyper_param, lacking = taken_over(read_run(item).hyper_param, {})
    if lacking:
        warn(f"hyper-parameters of the earlier run are {lacking}")


def report_changes(data: RunData, changed: dict[str, tuple[Any, Any]], step: float | None) -> None:
    """Warn of hyper-parameters that are not those of the run that continues, and keep them in the item."""
    if changed and data.run is not None:
        data.run.logger.log(f"[WARN] {data.clock.get_time()} : {tell_changes(changed)}", level=WARN)
        store_changes(data, changed, step)


def restore_state(
    data: RunData, state: dict[str, Any], step: int | None, item: ItemFolders, name: str
) -> None:
    """Clock, moving averages and custom data as they were at a checkpoint of `item`."""
    data.resumed, data.resumed_from = True, step
    data.checkpoints.resume_state = state
    data.clock.put(state.get("time_step", step or 0), state.get("leaders"))
    if "logger" in state:
        get_current().restore_memory(state["logger"])
    arrays = read_resume_arrays(state, item, name, step)
    custom = join_arrays(state.get("custom_data", {}), arrays)
    if unopened(custom) is not None:
        file = Path(item.folder(CHECKPOINT), RESUME_FOLDER, f"{name}_{step}.state")
        custom = open_own(custom, _why_not_own(data, state, item, file))
    data.custom.take(custom)
    if step is not None:
        data.custom.values.setdefault(TIME_STEP_DATA, step)


def _why_not_own(data: RunData, state: dict[str, Any], item: ItemFolders, file: Path) -> str | None:
    """Why objects in a resume state (its `file`) of `item` are not what the open run kept here."""
    from rla_client.checkpoint.pickle_trust import pickle_problem  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.find_run import read_run_file  # noqa: PLC0415

    opening = None if data.run is None else data.run.opening
    seen = data.disabled is not None and read_run_file(item).get("run_id")  # by a rank above 0
    run = seen or (opening.run if opening is not None else "")
    if not run or state.get("saved_by") != run:
        return "it was not written by this run"
    archive = Path(item.archive_file)
    files = [
        file,
        *arrays_of(Path(item.folder(CHECKPOINT)), file.stem),
        Path(item.folder(LOG), RUN_FILE),
        archive,
        archive.with_suffix(".pt"),
    ]
    found = (pickle_problem(path) for path in files if os.path.lexists(path))
    return next((why for why in found if why is not None), None)


def tell_resumed(briefly: str, wholly: str) -> None:
    """Say in the run's log from where it continues."""
    get_current().log(f"[RESUME] {get_current().clock.get_time()} : {briefly}", echo=False)
    backup(f"resumed {wholly}")
