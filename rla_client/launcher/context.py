"""What a call of an experiment is given, its `ctxt` and options, and where it writes: folder or database.

Snapshot modes (names and files as in garage):

    all           itr_N.pkl at every epoch
    last          params.pkl at every epoch
    gap           itr_N.pkl where N is a multiple of the gap
    gap_and_last  both of these
    gap_overwrite params.pkl where N is a multiple of the gap (> 1)
    none          nothing

An experiment is an item of an RLA database instead of a plain folder when `task_table_name`, `data_root` or
`rla_config` is given, or when an `rla_config.yaml` lies beside the launcher. It may also lie above, up to the
top of the git repository, for who works there: `rla_client.init` and `rla ls` search upwards from the working
folder. An explicit `log_dir` asks for a plain folder. The table is `task_table_name`, else the experiment's
prefix and name; the database is `data_root`, else where `rla_client.init` puts it: `$RLA_DATA_ROOT`, or
`data` beside rla_config.yaml. A project has one database then, which `rla ls` finds, and what `rla init`
ignores for git is all of it.

The code is that beside the configuration, without one that beside the launcher. A home folder or one for
temporary files is not a project: there `rla_client.code.find_code` finds it, as for `rla_client.init`.

Snapshots lie in checkpoint/, the code archive in code/, the rest in log/ of the item.

A folder is claimed by `mkdir`, which succeeds for exactly one of several processes that start at
the same moment; the others take `_1`, `_2`, ….

One experiment at a time writes into a log folder. Its lock is flock's, on a descriptor of the folder itself:
nothing is created, so nothing is there to be copied, reported or left behind, and it ends with the process.
Programs that are started do not inherit it (close-on-exec), and a forked child closes its copy, so workers
that outlive a killed training hold nothing. Where the file system refuses such locks (NFS does, for folders)
there is none.

A stream's folder is in the spool until everything in it is in its files and the stream is
finalised; then the agent removes it. So a run's outputs are complete, and nobody's but ours to
change, when no stream of its log folder is left: `settle` waits for that.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from rla_client.code.find_code import is_broad
from rla_client.code.walk import DATABASE_FOLDERS, VENV_MARKS
from rla_client.config.project import CONFIG_NAME, DATA_FOLDER, DATA_ROOT_VARIABLE, LAUNCHER_FOLDER
from rla_client.config.schema import load_config
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import AgentNotRunningError, ArgumentError, LaunchError
from rla_client.contract.layout import CHECKPOINT, LOG
from rla_client.contract.process.descriptors import OwnFile
from rla_client.contract.process.fork_hooks import at_fork
from rla_client.contract.process.locks import holder_pid, try_lock
from rla_client.contract.run_index import MAX_INDEX_NAME_BYTES, RunIndex
from rla_client.contract.safe_names import component_problem
from rla_client.contract.spool.opening import Opening, stream_opening
from rla_client.contract.spool.segments import segment_numbers, segment_size, stream_names
from rla_client.contract.spool.writer_liveness import writer_alive
from rla_client.database.records import log_folder
from rla_client.run.find import start_for
from rla_client.run.setup import names_code
from rla_client.stream.messenger import Messenger
from rla_client.stream.param_values import name_of
from rla_client.stream.values import whole_number

NAME_PARAMETERS = (None, "passed", "all", True)  # True means all
SNAPSHOT_MODES = ("all", "last", "gap", "gap_and_last", "gap_overwrite", "none")
LAST_FILE = "params.pkl"
POLL_S = 0.05
DYING_S = 2.0  # a killed process closes its files one by one: its last pipe may end before its lock does
RERUN_FOLDER = ("local", "rerun")  # in a database's folder; no kind of item, so nothing takes it for one

ResumeFrom: TypeAlias = int | Literal["last", "first"] | None


class SnapshotConfig(NamedTuple):
    """Where a runner leaves its snapshots, and when."""

    snapshot_dir: str
    snapshot_mode: str = "last"
    snapshot_gap: int = 1


@dataclass(frozen=True, slots=True)
class ExperimentContext:
    """The first argument of a wrapped experiment.

    Attributes:
        snapshot_dir: folder of the snapshots.
        snapshot_mode: one of SNAPSHOT_MODES.
        snapshot_gap: epochs between snapshots in the gap modes.
        log_dir: folder of progress.csv, debug.log and the rest; the snapshots lie there too
            unless the run is an item of a database.
        x_axis: key of the row that is the time-step of curves.
        resume_from: the snapshot that `LocalRunner.train` continues from; None for a new run.
    """

    snapshot_dir: str
    snapshot_mode: str
    snapshot_gap: int
    log_dir: str = ""
    x_axis: str = "TotalEnvSteps"
    resume_from: ResumeFrom = None


def check_mode(mode: object, gap: object) -> int:
    """The gap, of a mode and gap that can be meant.

    Raises:
        ArgumentError: unknown mode, gap below 1, `last` with a gap, `gap_overwrite` without one.
    """
    if mode not in SNAPSHOT_MODES:
        raise ArgumentError(f"snapshot_mode must be one of {', '.join(SNAPSHOT_MODES)}; got {mode!r}")
    gap = whole_number(gap, "snapshot_gap")
    if mode == "last" and gap != 1:
        message = f"snapshot_mode 'last' saves every epoch; for snapshot_gap={gap} use 'gap_overwrite'"
        raise ArgumentError(message)
    if mode == "gap_overwrite" and gap == 1:
        message = "snapshot_mode 'gap_overwrite' needs a snapshot_gap over 1; for every epoch use 'last'"
        raise ArgumentError(message)
    return gap


def snapshot_names(mode: str, gap: int, itr: int) -> tuple[str, ...]:
    """File names that epoch `itr` writes under a checked mode and gap."""
    numbered = f"itr_{itr}.pkl"
    due = itr % gap == 0
    names = {
        "all": (numbered,),
        "last": (LAST_FILE,),
        "gap": (numbered,) if due else (),
        "gap_and_last": (numbered, LAST_FILE) if due else (LAST_FILE,),
        "gap_overwrite": (LAST_FILE,) if due else (),
        "none": (),
    }
    return names[mode]


@dataclass(frozen=True, slots=True)
class Options:
    """How an experiment is kept. Names and defaults as in garage; the last three are ours.

    Attributes:
        log_dir: folder; default `<cwd>/data/local/<prefix>/<name>`.
        prefix: folder above it.
        name: default: the function's name.
        snapshot_mode: see above.
        snapshot_gap: epochs between snapshots in the gap modes.
        archive_launch_repo: keep the launching repository's code.
        name_parameters: put parameters into the name: `passed` ones or `all` (True: all).
        use_existing_dir: continue in the folder if it is there.
        x_axis: key of the row that is the time-step of curves.
        task_table_name: table of the database that the run becomes an item of.
        data_root: the database; default `$RLA_DATA_ROOT`, else `data` beside the configuration.
        rla_config: path of rla_config.yaml, or its content.
    """

    log_dir: str | os.PathLike[str] | None = None
    prefix: str = "experiment"
    name: str | None = None
    snapshot_mode: str = "last"
    snapshot_gap: int = 1
    archive_launch_repo: bool = True
    name_parameters: str | bool | None = None
    use_existing_dir: bool = False
    x_axis: str = "TotalEnvSteps"
    task_table_name: str | None = None
    data_root: str | os.PathLike[str] | None = None
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "snapshot_gap", check_mode(self.snapshot_mode, self.snapshot_gap))
        if self.name_parameters not in NAME_PARAMETERS:
            message = f"name_parameters is None, 'passed', 'all' or True; got {self.name_parameters!r}"
            raise ArgumentError(message)

    def changed(self, changes: Mapping[str, Any]) -> Options:
        """These options with some replaced.

        Raises:
            ArgumentError: an option that there is not, or a value that cannot be meant.
        """
        known = {field.name for field in fields(self)}
        unknown = sorted(str(name) for name in changes if name not in known)
        if unknown:
            raise ArgumentError(f"unknown option {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def named_parameters(self, passed: Mapping[str, Any], everything: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those parameters that the folder's name shows."""
        if self.name_parameters is None:
            return {}
        return passed if self.name_parameters == "passed" else everything


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the parts of one run lie: three names of one folder, or three kinds of an item.

    Attributes:
        log: rows, text, parameters.
        code: the code archive.
        snapshots: the snapshots.
        data_root: the database, None for a plain folder.
    """

    log: Path
    code: Path
    snapshots: Path
    data_root: Path | None = None

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders that hold data and no code."""
        if self.data_root is None:
            return (self.log,)
        return (*(self.data_root / kind for kind in DATABASE_FOLDERS), self.data_root.joinpath(*RERUN_FOLDER))


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


def experiment_name(name: str, parameters: Mapping[str, object]) -> str:
    """`name_k=v_k=v` as one folder name, without addresses; slashes become `_`, a long one ends in a hash."""
    whole = "_".join([name, *(f"{key}={name_of(value, format)}" for key, value in parameters.items())])
    flat = "".join("_" if char == "/" or not char.isprintable() else char for char in whole)
    raw = flat.encode("utf-8", "backslashreplace")
    if len(raw) > MAX_INDEX_NAME_BYTES:
        tail = "~" + hashlib.sha256(raw).hexdigest()[:12]
        return raw[: MAX_INDEX_NAME_BYTES - len(tail)].decode("utf-8", "ignore") + tail
    return raw.decode()


def default_log_dir(prefix: str, name: str) -> Path:
    """`<cwd>/data/local/<prefix>/<name>`.

    Raises:
        ArgumentError: a part of prefix or name cannot be a folder.
    """
    parts = [*prefix.split("/"), *name.split("/")]
    for part in parts:
        problem = component_problem(part)
        if problem:
            raise ArgumentError(f"the experiment's folder {prefix}/{name} cannot be made: {problem}")
    return Path.cwd().joinpath(*LAUNCHER_FOLDER, *parts)


def claim_folder(wanted: str | os.PathLike[str], *, existing: bool) -> Path:
    """Make `wanted`, or `wanted_1`, `wanted_2`, … where it is taken; `existing` takes it as it is.

    Raises:
        ArgumentError: the folder cannot be made.
    """
    first = Path(wanted).absolute()
    try:
        if existing:
            first.mkdir(parents=True, exist_ok=True)
            return first
        first.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            folder = first.with_name(f"{first.name}_{number}") if number else first
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        message = f"cannot make the experiment's folder {first}: {error.strerror or error}"
        raise ArgumentError(message) from error
    raise AssertionError  # count never ends


class FolderLock:
    """Holds `folder` for this process.

    Raises:
        LaunchError: another process holds it.
    """

    def __init__(self, folder: str) -> None:
        self._file: OwnFile | None = None
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return  # whoever writes there will say what is wrong with it
        try:
            taken = try_lock(descriptor, timeout_s=DYING_S)
        except OSError:  # no such locks here
            os.close(descriptor)
            return
        if not taken:
            pid = holder_pid(descriptor)
            holder = "another process" if pid is None else f"process {pid}"
            os.close(descriptor)
            raise LaunchError(
                f"{holder} is writing into {folder}; wait until it has ended, or stop it, before you use "
                "the folder again"
            )
        try:
            self._file = OwnFile(descriptor)
        except OSError:
            return
        at_fork(self)

    def release(self) -> None:
        """Let go. Does nothing the second time."""
        if self._file is not None:
            self._file.close()

    def after_fork_in_child(self) -> None:
        """Let go: the parent's copy of the descriptor keeps the lock."""
        self.release()


def settle(log_dir: str | os.PathLike[str], timeout_s: float = 30.0) -> None:
    """Return when no stream of `log_dir` is left in the spool.

    Raises:
        LaunchError: a process is still writing there.
        AgentNotRunningError: there is no agent to write it out in time.
    """
    started = time.monotonic()
    deadline = started + timeout_s
    places = find_places()
    folder = os.path.realpath(log_dir)
    while True:
        left = list(streams_of(folder))
        if not left:
            return
        if any(writer_alive(stream) for stream in left):
            if time.monotonic() - started > DYING_S:
                raise LaunchError(f"{folder} is being written by a running process; it cannot be resumed now")
        elif not agent_alive(places):
            start_for(places, map(stream_opening, left))
        if time.monotonic() > deadline:
            raise AgentNotRunningError(
                f"rows of {folder} still wait in {places.spool}; "
                "start the agent (rla-agent start --detach) and try again"
            )
        time.sleep(POLL_S)


def streams_of(log_dir: str) -> Iterator[Path]:
    """Folders of the spool's streams that write into `log_dir` (an absolute path without links)."""
    spool = find_places().spool
    for name in stream_names(spool) if spool.is_dir() else ():
        if log_folder(spool / name) == log_dir:
            yield spool / name


def await_written(folder: str, timeout_s: float, *, own: bool) -> str:
    """Wait until the agent has written what runs of `folder`, ended or not, have given it by now.

    Args:
        folder: of logs or checkpoints, an absolute path without links.
        timeout_s: at most.
        own: also what runs of this very process gave.

    Returns:
        Why that did not come about; empty when it did.
    """
    places, deadline = find_places(), time.monotonic() + timeout_s
    messenger = Messenger(places, autostart=False, config_path=None)
    for name in stream_names(places.spool) if places.spool.is_dir() else ():
        stream = places.spool / name
        if name.split("-")[1] == str(os.getpid()) and not own:
            continue
        opening = stream_opening(stream)
        if opening is None or kind_of(folder, opening) is None:
            continue
        try:
            number = segment_numbers(stream)[-1]
            end = {"s": name, "n": number, "o": segment_size(stream, number), "m": False}
        except (OSError, IndexError):
            continue  # all of it is written
        if not agent_alive(places):
            return "no agent runs that would write it; start one: rla-agent start --detach"
        if not messenger.await_flushed(end, deadline).done:
            return "the agent has not written it; see: rla-agent status"
    return ""


def kind_of(folder: str, opening: Opening) -> str | None:
    """Which folder of a run this one is, of checkpoints or logs; an absolute path without links."""
    for kind in (CHECKPOINT, LOG):
        if kind in opening.folders and os.path.realpath(opening.folder(kind)) == folder:
            return kind
    return None
