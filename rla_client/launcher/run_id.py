"""Run id of an experiment's call.

With RLA_RUN_ID and RLA_RESUME an item continues from its last snapshot when its program starts again.
`exp_manager` continues from checkpoints, which an experiment with a runner does not save. So a call first
looks for the unfinished item of its run_id, and continues it like `rla resume`, with the launch record in
its log folder. `exp_manager` continues items without a launch record, without a snapshot or with
checkpoints.

A program may make several calls. The first has the run_id itself, the n-th `<run_id>:<n>`, also when the
program starts again. Calls inside another experiment, or while `exp_manager` has a run open, have none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rla_client.checkpoint.listing import list_checkpoints
from rla_client.config.schema import load_config
from rla_client.contract.errors import AgentNotRunningError, LaunchError, NotAFileError
from rla_client.contract.layout import LOG
from rla_client.launcher.experiment_database import DatabasePlan
from rla_client.launcher.launch_record import read_launch
from rla_client.launcher.pending_streams import await_end
from rla_client.launcher.snapshot.snapshot_files import find_snapshot
from rla_client.launcher.wanted_call import Relaunch, relaunch_of
from rla_client.run.configure import ResumeMode, named_run
from rla_client.run.resume.find_run import find_here
from rla_client.run.run_checkpoints import CHECKPOINT_NAME


class RunName(NamedTuple):
    """`run_id` and `resume` of a call, as in `configure`; `run_id` is None for a call without one."""

    run_id: str | None = None
    resume: ResumeMode = "never"


def run_name(call: int) -> RunName:
    """The name of a program's top-level call, counted from 1.

    Raises:
        ArgumentError: RLA_RESUME has an unknown value, or is `must` without RLA_RUN_ID.
    """
    run_id, resume = named_run()
    return RunName(run_id if run_id is None or call == 1 else f"{run_id}:{call}", resume)


def find_earlier_call(name: RunName, function: str, plan: DatabasePlan) -> Relaunch | None:
    """Relaunch by which `function` continues the item of this name; None if `exp_manager` decides.

    Raises:
        StillWritingError: a living process writes the item.
        LaunchError: the item belongs to another function.
    """
    if name.run_id is None or name.resume == "never":
        return None
    autostart = load_config(plan.config).agent.autostart
    root = str(plan.data_root)
    item, _late = find_here(root, plan.table, name.run_id, autostart=autostart, any_state=True, ends_s=0.0)
    if item is None:
        return None
    folder = Path(item.folder(LOG))
    try:
        await_end(folder)  # the agent may still have the snapshot
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
            f"the run {name.run_id!r} in {folder} was started by {launch.function}, so {function} "
            "cannot continue it: start the program as it was first, or give another RLA_RUN_ID"
        )
    if list_checkpoints(snapshots, CHECKPOINT_NAME, pruned=True):
        return None
    return relaunch_of(launch, folder, snapshots, parameters, "last")
