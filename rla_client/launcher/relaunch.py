"""Starting a launcher again, to continue or repeat one of its runs, and how it learns which one.

`rla resume`, `rla restore-code` and `rla rerun` go by the launch record in the run's log folder (launch.py).
Resume and rerun start the launcher as it was started first, in a process of its own with the user's rights;
what it prints goes to this terminal. It gets the recorded environment variables that change results, and
modules of the repository from where they came from.

`RLA_RELAUNCH` tells it which call of which wrapped function is meant, the folder it is to use, its recorded
parameters, and from which snapshot it continues. That call runs there; every other call of a wrapped function
at top level is passed over, so a launcher that runs several experiments, or has no
`if __name__ == "__main__"`, repeats only the one.

A launcher may make its calls in several processes (multiprocessing.Pool), which all inherit the
variable, and in which the number of a call means nothing. There the first call that becomes the
recorded one by its parameters is taken. What the run itself starts does not see the variable; processes
that the launcher starts after it do, or their runs would be made anew. A token, a file that only one
process can remove, makes sure that it is one; a token that is still there at the end says that no call was.

With RLA_RUN_ID and RLA_RESUME an item continues from its last snapshot when its program starts again.
`exp_manager` continues by checkpoints, of which an experiment that has a runner takes none. So a call first
looks itself for the unfinished item of its run_id, and continues in it as after `rla resume`: by the launch
record in its log folder. It leaves to `exp_manager` (a new item, the error of `must`, or the item from its
checkpoint or its beginning) what has no launch record, no snapshot, or checkpoints of `exp_manager`'s own.

A program may make several calls. The first has the run_id itself, the n-th `<run_id>:<n>`, also when the
program starts again. Calls inside of another experiment, or while `exp_manager` has a run open, have none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rla_client.checkpoint.listing import list_checkpoints
from rla_client.code import launch_archive
from rla_client.code.hidden_values import restored
from rla_client.config.schema import load_config
from rla_client.contract.errors import AgentNotRunningError, LaunchError, NotAFileError
from rla_client.contract.layout import CODE, HYPARAM_FILE_NAME, LOG
from rla_client.contract.text.csv_lines import stream_rows
from rla_client.database.tree import files_below
from rla_client.launcher.context import DatabasePlan, ResumeFrom, settle
from rla_client.launcher.launch import METADATA_NAME, Launch, fits, read_launch, read_variables
from rla_client.launcher.snapshotter import find_snapshot
from rla_client.run.data import CHECKPOINT_NAME
from rla_client.run.find import find_here
from rla_client.run.run import disabled
from rla_client.run.setup import named_run

VARIABLE = "RLA_RELAUNCH"
MAX_DIFFERENCES = 10  # that are told
_TIME_COLUMN = "timestamp"  # and whatever begins with one of these:
_TIME_PREFIXES = ("time_used/", "wait_", "time/")

_calls: Counter[tuple[str, bool]] = Counter()
_wanted: list[Relaunch] = []


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two runs' rows differ, time columns aside.

    Attributes:
        rows: rows of the first and of the second.
        differences: (row number from 0, column, first value, second value), the first few.
    """

    rows: tuple[int, int]
    differences: tuple[tuple[int, str, str, str], ...]

    @property
    def equal(self) -> bool:
        """Whether both are the same."""
        return self.rows[0] == self.rows[1] and not self.differences


def resume(log_dir: str | os.PathLike[str], from_epoch: int | str = "last") -> int:
    """Go on with an interrupted run, in its folder, from a snapshot.

    Args:
        log_dir: the run's log folder.
        from_epoch: number of the snapshot's epoch, `last` or `first`.

    Returns:
        The launcher's exit status.

    Raises:
        LaunchError: no launch record, a run that is still going, a launcher that no longer makes it.
        AgentNotRunningError: no agent to write out its rows.
        FileNotFoundError: no such snapshot; `last` without any begins at the first epoch instead.
    """
    folder = Path(log_dir).absolute()
    launch, parameters = _top_launch(folder)
    source = _resume_from(from_epoch)
    snapshots = Path(os.path.normpath(folder / launch.snapshot_dir))
    if launch.script is not None and not os.path.isfile(launch.script):
        raise LaunchError(
            f"the launcher {launch.script} is gone; `rla restore-code` gives the tree back that it was in"
        )
    settle(folder)  # the agent may still have the snapshot
    if source != "last":
        find_snapshot(snapshots, source)
    return _start(launch, folder, relaunch_of(launch, folder, snapshots, parameters, source))


def restore_code(log_dir: str | os.PathLike[str], target: str | os.PathLike[str]) -> launch_archive.Manifest:
    """Give back the run's source tree in a new folder, each file checked by its hash.

    Returns:
        The archive's manifest; `left_out` names files that it never held (too large).

    Raises:
        LaunchError: no archive, a damaged one, or `target` is not empty.
    """
    folder = Path(log_dir).absolute()
    launch, _parameters = read_launch(folder)
    return launch_archive.restore(Path(os.path.normpath(folder / launch.code_dir)), Path(target).absolute())


def is_of_launcher(log_dir: Path) -> bool:
    """Whether a run says that a launcher began it."""
    return (log_dir / METADATA_NAME).exists()


def copy_code(log_dir: Path, target: Path) -> int:
    """Copy the code that an ordinary run of a database keeps to a new folder; how many files.

    Args:
        log_dir: the run's log folder, `<data root>/log/<table>/<index>`.
        target: a new folder.

    Raises:
        LaunchError: it keeps none, or `target` is not empty.
    """
    parts = log_dir.absolute().parts
    at = len(parts) - 1 - list(reversed(parts)).index(LOG) if LOG in parts else 0
    code = Path(*parts[:at], CODE, *parts[at + 1 :])
    parameters = {f"{HYPARAM_FILE_NAME}.{ending}" for ending in ("json", "yaml")}
    kept = [Path(path) for path in files_below(str(code))] if at else []
    kept = [path for path in kept if path.relative_to(code).as_posix() not in parameters]
    if not kept:
        raise LaunchError(
            f"the run of {log_dir} keeps no code\n"
            "hint: backup_code_dir in rla_config.yaml names what runs keep"
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise LaunchError(f"{target} is not empty: give a new folder")
        for path in kept:
            copy = target / path.relative_to(code)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    except OSError as error:
        raise LaunchError(f"the code was not copied to {target}: {error}") from error
    return len(kept)


def rerun(log_dir: str | os.PathLike[str], target: str | os.PathLike[str]) -> Comparison:
    """Run the same code with the same parameters again and compare the rows.

    Args:
        log_dir: the run's log folder.
        target: a new folder: `target/code` gets the code, `target/run` the repeated run.

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
    settle(folder)
    settle(repeated)
    return _compare_rows(folder / "progress.csv", repeated / "progress.csv")


def _compare_rows(first: Path, second: Path) -> Comparison:
    """Compare two progress.csv by the text of their cells, time columns aside."""
    one, two = _read(first), _read(second)
    differences: list[tuple[int, str, str, str]] = []
    for number, (left, right) in enumerate(zip(one, two, strict=False)):
        for column in sorted({*left, *right}):
            if column == _TIME_COLUMN or column.startswith(_TIME_PREFIXES):
                continue
            a, b = left.get(column) or "", right.get(column) or ""
            if a != b and len(differences) < MAX_DIFFERENCES:
                differences.append((number, column, a, b))
    return Comparison((len(one), len(two)), tuple(differences))


def _read(path: Path) -> list[dict[str, str]]:
    with suppress(FileNotFoundError), open(path, newline="", encoding="utf-8") as file:
        columns, *rows = [row for row in stream_rows(file) if row] or [[]]
        return [dict(zip(columns, row, strict=False)) for row in rows]
    return []


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
        LaunchError: no record, the run was part of another, or nothing is to be stored.
    """
    launch, parameters = read_launch(folder)
    if disabled():
        raise LaunchError("RLA_MODE=disabled: a run that is resumed or repeated is stored; unset it")
    if launch.outer is not None:
        outer = os.path.normpath(folder / launch.outer)
        raise LaunchError(
            f"{folder} was made by {launch.function} inside of the experiment in {outer}, and cannot be "
            "started without it; name that folder instead"
        )
    return launch, parameters


def _start(launch: Launch, log_dir: Path, relaunch: Relaunch, *, root: Path | None = None) -> int:
    """Start the launcher, in the repository or a copy of it at `root`, and wait for its end; its exit status.

    Raises:
        LaunchError: it cannot be started, or it ended well without making the run.
    """
    command, folder = launch.command(root=root)
    if root is not None:
        os.makedirs(folder, exist_ok=True)
    environment = {**os.environ, **read_variables(log_dir)}
    if import_path := launch.import_path(root=root):
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*import_path, *([given] if given else [])])
    descriptor, token = tempfile.mkstemp(prefix="rla-launch-")  # whoever takes it removes it
    os.close(descriptor)
    try:
        told = replace(relaunch, token=token, starter=os.getpid())
        status = _wait_for(command, folder, {**environment, VARIABLE: told.to_variable()})
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
            continue  # the terminal sent it to the launcher too, which ends by it


@dataclass(frozen=True, slots=True)
class Relaunch:
    """What RLA_RELAUNCH says.

    Attributes:
        function: qualified name of the wrapped function.
        call: which call of it, from 0.
        log_dir: folder to use as it is.
        snapshot_dir: folder of its snapshots.
        config: path of rla_config.yaml, where the folder is an item's.
        parameters: recorded parameters, plain data.
        resume_from: snapshot to continue from; None for a run from the beginning.
        log_used: outputs of an item without a configuration file; None: the usual ones.
        token: file that the process which makes the run removes.
        starter: pid of `rla`, the parent of the launcher itself, not of processes that it starts.
    """

    function: str
    call: int
    log_dir: str
    snapshot_dir: str
    config: str | None
    parameters: dict[str, Any]
    resume_from: ResumeFrom = None
    log_used: list[str] | None = None
    token: str | None = None
    starter: int | None = None

    def to_variable(self) -> str:
        """Value for the environment variable."""
        return json.dumps(asdict(self))

    def is_for(self, function: str, call: int, parameters: Mapping[str, Any]) -> bool:
        """Whether this call is meant. True for one call in all processes of the launcher."""
        if function != self.function:
            return False
        pooled = self.starter is not None and os.getppid() != self.starter
        if not (fits(parameters, restored(self.parameters, parameters, [])) if pooled else call == self.call):
            return False
        if self.token is None:
            return True
        with suppress(FileNotFoundError):
            os.unlink(self.token)
            return True
        return False


def wanted() -> Relaunch | None:
    """The run this process was started to repeat or continue; None in an ordinary launch.

    Raises:
        LaunchError: the variable holds something else.
    """
    value = os.environ.get(VARIABLE, "")
    if _wanted or not value:
        return _wanted[0] if _wanted else None
    try:
        known = {field.name for field in fields(Relaunch)}  # another release may say more
        found = {key: content for key, content in json.loads(value).items() if key in known}
        _wanted[:] = [Relaunch(**found)]
        return _wanted[0]
    except (ValueError, TypeError, AttributeError) as error:
        raise LaunchError(f"{VARIABLE} is not what `rla resume` and `rla rerun` set: {error}") from error


@contextmanager
def taken() -> Iterator[None]:
    """Around the wanted run: what it starts is its own and sees no variable."""
    value = os.environ.pop(VARIABLE, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[VARIABLE] = value


def count_call(function: str, *, nested: bool) -> int:
    """Which call of `function` in this process begins now, from 0.

    Calls inside of other experiments are counted by themselves: a relaunch does not make them.
    """
    key = (function, nested)
    number = _calls[key]
    _calls[key] += 1
    return number


def top_level_calls() -> int:
    """How many calls of experiments that are not inside of another began in this process."""
    return sum(number for (_function, nested), number in _calls.items() if not nested)


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


def find_earlier_call(name: RunName, function: str, plan: DatabasePlan) -> Relaunch | None:
    """How `function` continues its item of this name; None where that is exp_manager's to decide.

    Raises:
        StillWritingError, LaunchError: a living process writes it; or it is another function's.
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
            f"the run {name.run_id!r} in {folder} was started by {launch.function}, so {function} "
            "cannot continue it: start the program as it was first, or give another RLA_RUN_ID"
        )
    if list_checkpoints(snapshots, CHECKPOINT_NAME, pruned=True):
        return None
    return relaunch_of(launch, folder, snapshots, parameters, "last")


def relaunch_of(
    launch: Launch, log_dir: Path, snapshots: Path, parameters: dict[str, Any], source: ResumeFrom
) -> Relaunch:
    """The call that was recorded, once more: in `log_dir`, from the snapshot `source`."""
    return Relaunch(
        launch.function,
        launch.call,
        str(log_dir),
        str(snapshots),
        launch.config,
        parameters,
        source,
        launch.log_used,
    )
