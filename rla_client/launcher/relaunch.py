"""Start of a launcher that continues or repeats one of its runs.

`rla resume` and `rla rerun` start the launcher with its recorded command (launch_record.py), in a process of
its own with the user's rights and this terminal. It gets the recorded environment variables that change
results, and imports modules of the repository from the recorded folders.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rla_client.contract.errors import LaunchError
from rla_client.launcher.code_restore import restore_code
from rla_client.launcher.launch_record import Launch, read_launch, read_variables
from rla_client.launcher.pending_streams import await_end
from rla_client.launcher.row_comparison import Comparison, compare_rows
from rla_client.launcher.snapshot.snapshot_files import find_snapshot
from rla_client.launcher.wanted_call import VARIABLE, Relaunch, relaunch_of
from rla_client.run.run_mode import disabled, why_disabled


def resume(log_dir: str | os.PathLike[str], from_epoch: int | str = "last") -> int:
    """Continue an interrupted run, in its folder, from a snapshot.

    Args:
        log_dir: the run's log folder.
        from_epoch: number of the snapshot's epoch, `last` or `first`.

    Returns:
        The launcher's exit status.

    Raises:
        LaunchError: no launch record, the run is still going, or the launcher no longer makes it.
        AgentNotRunningError: no agent writes its rows.
        FileNotFoundError: no such snapshot; `last` without any snapshot begins at the first epoch.
    """
    folder = Path(log_dir).absolute()
    launch, parameters = _top_launch(folder)
    source = _resume_from(from_epoch)
    snapshots = Path(os.path.normpath(folder / launch.snapshot_dir))
    if launch.script is not None and not os.path.isfile(launch.script):
        raise LaunchError(
            f"the launcher {launch.script} is gone; `rla restore-code` gives the tree back that it was in"
        )
    await_end(folder)  # the agent may still have the snapshot
    if source != "last":
        find_snapshot(snapshots, source)
    return _start(launch, folder, relaunch_of(launch, folder, snapshots, parameters, source))


def rerun(log_dir: str | os.PathLike[str], target: str | os.PathLike[str]) -> Comparison:
    """Run the same code with the same parameters again and compare the rows.

    Args:
        log_dir: the run's log folder.
        target: a new folder, for the code in `target/code` and the repeated run in `target/run`.

    Raises:
        LaunchError: the code cannot be restored, or the repeated run failed.
    """
    folder, base = Path(log_dir).absolute(), Path(target).absolute()
    launch, parameters = _top_launch(folder)
    restore_code(folder, base / "code")
    repeated = base / "run"
    relaunch = relaunch_of(launch, repeated, repeated, parameters, None)
    status = _start(launch, folder, relaunch, root=base / "code")
    if status != 0:
        raise LaunchError(f"the repeated run in {repeated} ended with status {status}")
    await_end(folder)
    await_end(repeated)
    return compare_rows(folder / "progress.csv", repeated / "progress.csv")


def _resume_from(from_epoch: int | str) -> int | Literal["last", "first"]:
    if from_epoch == "last":
        return "last"
    if from_epoch == "first":
        return "first"
    if str(from_epoch).isdecimal():
        return int(from_epoch)
    raise LaunchError(f"--from-epoch takes a number, 'last' or 'first'; got {from_epoch!r}")


def _top_launch(folder: Path) -> tuple[Launch, dict[str, object]]:
    """The launch of a run that can be started by itself.

    Raises:
        LaunchError: no record, the run was part of another, or runs are not stored here.
    """
    launch, parameters = read_launch(folder)
    if disabled():
        raise LaunchError(
            f"a run that is resumed or repeated is stored, and here nothing is: {why_disabled()}"
        )
    if launch.outer is not None:
        outer = os.path.normpath(folder / launch.outer)
        raise LaunchError(
            f"{folder} was made by {launch.function} inside of the experiment in {outer}, and cannot be "
            "started without it; name that folder instead"
        )
    return launch, parameters


def _start(launch: Launch, log_dir: Path, relaunch: Relaunch, *, root: Path | None = None) -> int:
    """Exit status of the launcher, run in the repository or a copy of it at `root`.

    Raises:
        LaunchError: it cannot be started, or it succeeded without making the run.
    """
    command, folder = launch.command(root=root)
    if root is not None:
        os.makedirs(folder, exist_ok=True)
    environment = {**os.environ, **read_variables(log_dir)}
    if import_path := launch.import_path(root=root):
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*import_path, *([inherited] if inherited else [])])
    descriptor, token = tempfile.mkstemp(prefix="rla-launch-")  # the process that makes the run removes it
    os.close(descriptor)
    try:
        request = replace(relaunch, token=token, starter=os.getpid())
        status = _wait_for(command, folder, {**environment, VARIABLE: request.to_variable()})
        if status == 0 and os.path.exists(token):
            raise LaunchError(
                f"call {relaunch.call} of {relaunch.function} was not reached: {' '.join(command)} ended "
                "without making it, so nothing was run"
            )
    finally:
        Path(token).unlink(missing_ok=True)
    return status


def _wait_for(command: list[str], folder: str, environment: Mapping[str, str]) -> int:
    try:
        process = subprocess.Popen(command, cwd=folder, env=environment)
    except OSError as error:
        message = f"cannot start {' '.join(command)} in {folder}: {error.strerror or error}"
        raise LaunchError(message) from error
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the terminal also interrupts the launcher, which then ends
