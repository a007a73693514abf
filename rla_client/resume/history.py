"""What an earlier run hands to the open one: parameters, clock, custom data; a fork's files.

`restore` brings back what held at a checkpoint: clock, moving averages, custom data. Opening the run is
`resume.begin`'s.

`fork` puts the data of an earlier run under the open one; CSV and TensorBoard continue in it. Its files are
`resume.put_under`'s.
"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.layout import HYPARAMETER, LOG
from rla_client.contract.paths import find_places
from rla_client.run.custom_values import join_arrays, load_arrays, split_arrays, unpack_arrays
from rla_client.run.data import TIME_STEP_DATA, RunData
from rla_client.run.item import Item
from rla_client.run.run import get_current, warn
from rla_client.run.start import bind_recorders
from rla_client.stream.clock import time_step_holder

if TYPE_CHECKING:
    from rla_client.resume.find import FoundRun

FRAMEWORKS = ("torch", "tensorflow")  # of checkpoints; the first where nothing tells


def load_into(data: RunData, found: FoundRun) -> None:
    """Make `data` and its setup those of a run that was found."""
    item, setup = found.item, data.setup
    data.item, data.run_file, data.custom_data = item, found.run_file, found.custom_data
    setup.loaded_record = found.tracked
    setup.hyper_param = found.hyper_param
    setup.address = item.index.ip
    framework = found.archive.get("dl_framework")
    setup.dl_framework = framework if framework in FRAMEWORKS else FRAMEWORKS[0]
    setup.log_name_format_version = item.index.version
    setup.task_table_name, setup.data_root = item.table, item.root
    setup.record_date, setup.info = item.opened, item.index.info
    config = found.archive.get("private_config")
    setup.private_config = config if isinstance(config, dict) else None


def relocate(data: RunData, root: str | os.PathLike[str]) -> None:
    """Say that the run's database now lies at `root`.

    Raises:
        NotConfiguredError: no run is loaded or open.
    """
    if data.item is None and data.disabled is not None:
        return
    if data.item is None:
        message = "no run is loaded or open"
        raise NotConfiguredError(message)
    item = data.item
    data.item = Item(os.path.abspath(root), item.table, item.index, item.opened)
    data.setup.data_root = os.fspath(root)


def take_parameters(data: RunData, stored: dict[str, Any]) -> None:
    """Take the hyper-parameters of an earlier run, but for secrets, which it does not keep."""
    from rla_client.code.secrets import taken_over  # noqa: PLC0415

    data.setup.hyper_param, lacking = taken_over(stored, {})
    if lacking:
        warn(f"hyper-parameters of the earlier run are {lacking}")


def changes_since(data: RunData, item: Item) -> dict[str, tuple[Any, Any]]:
    """Hyper-parameters whose value in `item` is another one: name → (there, now)."""
    from rla_client.resume.parameters import changed_parameters  # noqa: PLC0415

    return changed_parameters(item, data.setup.hyper_param, data.setup.secrets())


def tell_changes(data: RunData, changed: dict[str, tuple[Any, Any]], step: int | None) -> None:
    """Warn of hyper-parameters that are not those of the run that continues, and keep them in the item."""
    item, run = data.item, data.run
    if not changed or item is None or run is None:
        return
    from rla_client.resume import parameters  # noqa: PLC0415

    warn(parameters.tell_changes(changed))
    shown = data.setup.secrets().parameters(data.setup.hyper_param)
    try:
        name, content = parameters.keep_changes(item, shown, changed, step)
    except OSError as error:
        warn(f"the changed hyper-parameters were not kept: {error.strerror or error}")
        return
    for kind in (LOG, HYPARAMETER):
        run.file(kind, name, content)


def restore(data: RunData, state: dict[str, Any], step: int | None, item: Item) -> None:
    """Clock, moving averages and custom data as they were at a checkpoint of `item`."""
    data.resumed_from = 0 if step is None else step
    data.resume_state = state
    time_step_holder.set_time(state.get("time_step", step or 0))
    if "logger" in state:
        get_current().restore_memory(state["logger"])
    arrays = unpack_arrays(state["arrays"]) if state.get("arrays") else load_arrays(item.archive_file)
    data.custom_data = join_arrays(state.get("custom_data", {}), arrays)
    if step is not None:
        data.custom_data.setdefault(TIME_STEP_DATA, step)


def fork(data: RunData, loaded: RunData) -> None:
    """Put the data of the loaded run under the open one; see `ExpManager.log_file_copy`."""
    source, item, run = loaded.item, data.item, data.run
    if source is not None and data.disabled is not None:
        _take_custom_data(data, loaded)
        return  # rank 0 does the rest; or nothing is stored
    if source is None or item is None or run is None:
        message = "log_file_copy needs an open run and a loaded one"
        raise NotConfiguredError(message)
    from rla_client.resume.find import await_taken_in, streams_of  # noqa: PLC0415
    from rla_client.resume.resume import put_under  # noqa: PLC0415

    places, autostart = find_places(), data.setup.configured()[1].agent.autostart
    late = await_taken_in(places, streams_of(places, source, loaded.run_file), autostart=autostart)
    if late:
        warn(f"the fork of {source.index.path} lacks what that run recorded last: {late}")
    problem = put_under(source, item, run)
    if problem:
        warn(f"not all data of {source.index.path} were put under this run: {problem}")
    bind_recorders(run, item)
    parent = {"run": source.index.path, "table": source.table, "time_step": time_step_holder.get_time()}
    run.mark("parent", parent)
    _take_custom_data(data, loaded)
    data.save_archive()


def _take_custom_data(data: RunData, loaded: RunData) -> None:
    """Copies of the loaded run's custom data under keys that the open one has not."""
    for key, value in loaded.custom_data.items():
        if key in data.custom_data:
            continue
        try:
            split_arrays(value, {}, key)
        except ArgumentError as error:
            warn(f"not taken over: {error}")
            continue
        data.custom_data[key] = copy.deepcopy(value)
