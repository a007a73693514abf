"""RLA_RUN_ID and RLA_RESUME: when a program starts again, its item continues from the last snapshot.

`exp_manager` continues by checkpoints, of which an experiment that has a runner takes none. So a call first
looks itself for the unfinished item of its run_id, and continues in it as after `rla resume`: by the launch
record in its log folder. It leaves to `exp_manager` (a new item, the error of `must`, or the item from its
checkpoint or its beginning) what has no launch record, no snapshot, or checkpoints of `exp_manager`'s own.

A program may make several calls. The first has the run_id itself, the n-th `<run_id>:<n>`, also when the
program starts again. Calls inside of another experiment, or while `exp_manager` has a run open, have none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from rla_client.checkpoint.files import list_checkpoints
from rla_client.config.schema import load_config
from rla_client.contract.errors import AgentNotRunningError, LaunchError, NotAFileError
from rla_client.contract.layout import LOG
from rla_client.launcher.launch import Relaunch, read_launch, relaunch_of
from rla_client.launcher.settle import settle
from rla_client.launcher.snapshotter import find_snapshot
from rla_client.run.data import CHECKPOINT_NAME
from rla_client.run.setup import named_run


class RunName(NamedTuple):
    """`run_id` of a call, None without one, and `resume` as `configure` takes it."""

    run_id: str | None = None
    resume: str = "never"


def run_name(call: int) -> RunName:
    """The name of a program's top-level call.

    Args:
        call: which one, from 1.

    Raises:
        ArgumentError: RLA_RESUME says nothing that there is, or `must` without RLA_RUN_ID.
    """
    run_id, resume = named_run()
    return RunName(run_id if run_id is None or call == 1 else f"{run_id}:{call}", resume)


def find_unfinished_call(
    name: RunName, function: str, root: Path, table: str, config: Path | dict[str, Any]
) -> Relaunch | None:
    """How to continue the unfinished item of this name; None where that is exp_manager's to decide.

    Args:
        name: of the call.
        function: qualified name of the experiment's function.
        root: of the database.
        table: its table.
        config: its configuration.

    Raises:
        StillWritingError, LaunchError: a living process writes it; or it is another function's.
    """
    if name.run_id is None or name.resume == "never":
        return None
    from rla_client.resume.resume import find_here  # noqa: PLC0415 - rarely needed

    autostart = load_config(config).agent.autostart
    item, _late = find_here(str(root), table, name.run_id, autostart=autostart, ends_s=0.0)
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
        message = (
            f"the unfinished run {name.run_id!r} in {folder} was started by {launch.function}, so {function} "
            "cannot continue it: start the program as it was first, or give another RLA_RUN_ID"
        )
        raise LaunchError(message)
    if list_checkpoints(snapshots, CHECKPOINT_NAME, pruned=True):
        return None
    return relaunch_of(launch, folder, snapshots, parameters, "last")
