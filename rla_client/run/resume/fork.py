"""Fork of an earlier run into the open one.

CSV and TensorBoard continue in it. Copies of the files are made by `fork_files`.
"""

from __future__ import annotations

import copy
from pathlib import Path

from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import NotConfiguredError
from rla_client.contract.layout import CHECKPOINT
from rla_client.run import failure
from rla_client.run.current_logger import warn
from rla_client.run.open_stream import bind_recorders
from rla_client.run.run_data import RunData
from rla_client.run.state.run_archive import save_archive


def fork(data: RunData, loaded: RunData) -> None:
    """Put the data of the loaded run under the open one; see `ExpManager.log_file_copy`."""
    source, item, run = loaded.item, data.item, data.run
    if source is not None and data.disabled is not None:
        _take_custom_data(data, loaded)
        return  # rank 0 does the rest; or nothing is stored
    if source is None or item is None or run is None:
        raise NotConfiguredError("log_file_copy needs an open run and a loaded one")
    from rla_client.run.resume.earlier_streams import await_taken_in, streams_of  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.fork_files import copy_run_into  # noqa: PLC0415

    places, autostart = find_places(), data.setup.configured()[1].agent.autostart
    late = await_taken_in(places, streams_of(places, source, loaded.run_file), autostart=autostart)
    if late:
        warn(f"the fork of {source.index.path} lacks what that run recorded last: {late}")
    problem = copy_run_into(source, item, run)
    if problem:
        warn(f"not all data of {source.index.path} were put under this run: {problem}")
    from rla_client.contract.checkpoint.checkpoint_age import newest_order  # noqa: PLC0415 - rarely needed

    data.checkpoints.save_after(newest_order(Path(item.folder(CHECKPOINT))))
    bind_recorders(run, item)
    parent = {"run": source.index.path, "table": source.table, "time_step": data.clock.get_time()}
    run.mark("parent", parent)
    _take_custom_data(data, loaded)
    save_archive(data)


def _take_custom_data(data: RunData, loaded: RunData) -> None:
    """Copies of the loaded run's custom data under keys that the open one has not."""
    for key, value in loaded.custom.values.items():
        if key in data.custom.values:
            continue
        if loaded.custom.is_unread(key):
            told = "load it with get_custom_data(key, trust=True) of the loaded run before the fork"
            warn(f"custom data {key!r} is not taken over, it holds an object of another run: {told}")
            continue
        try:
            data.custom.values[key] = copy.deepcopy(value)
        except Exception as error:  # noqa: BLE001 - of the user's class
            warn(f"custom data {key!r} is not taken over: {failure.reason_text(error)}")
