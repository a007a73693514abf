"""Opening a run: of an item, in a plain folder, or of a rank above 0; and what every run begins with.

A run that is opened gets its recorders, its code is captured, and it says in its own log where it lies.

Ranks above 0 of a distributed job are dropped by default, or joined to rank 0's run. Rank 0 publishes
its run's description under a name that all ranks of the job share (torchrun's run id and master port, or
the Slurm job and step); the others pick it up. They do not wait: until it is there, their records wait in
memory in order. Only where the run may be resumed does a rank wait, RESUMED_WAIT_S at most, for what rank 0
says about the point it continues from: a look of its own would come too early or too late. A rank that can
tell that nothing will come (`why_apart`) says so at once and does not wait. What waits in memory when the
rank ends waits `exit_wait_s` more: rank 0 may still be opening its run.

RLA_RUN_FILE: who started this program learns which items it opened. The file gets a line for each item that
a process opens or continues, as it is opened:

    {"data_root": "/data/rla", "table": "t", "index": "2026/11/21/…", "run_key": "sweep-3"}

`run_key` is the `run_id`, empty without one. Workers of a run, ranks above 0 and RLA_MODE=disabled open none.
An item that the same process opens again in its turn (a launcher's runner that goes back to a snapshot)
has its line already. Whatever goes wrong is one warning: training is worth more than the line.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import ArgumentError, RemoteProtocolError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.file_systems import network_file_system
from rla_client.contract.filesystem.plain_files import append_line, read_small
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CODE,
    FOLDER_KINDS,
    LOG,
    OTHER_RESULTS,
    OUTPUT_NAMES,
    SINKS,
)
from rla_client.contract.process.descriptors import standard_taken
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import Opening
from rla_client.run.data import RunData
from rla_client.run.item import DisabledRun, Item
from rla_client.run.recording import Comm, Logger, Row
from rla_client.run.run import (
    Run,
    check_path,
    disabled,
    make_opening,
    rank,
    warn,
    worker_opening,
)
from rla_client.stream.clock import TimeStepHolder
from rla_client.stream.clock import clock as current_clock
from rla_client.stream.outbox import Outbox

if TYPE_CHECKING:
    from rla_client.config.schema import AgentConfig, Config

RUN_FILE_VARIABLE = "RLA_RUN_FILE"
FOLDERS_TOLD = ("log_dir", "pkl_file", "checkpoint_dir", "results_dir", "tmp_data_dir")
JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "OMPI_MCA_ess_base_jobid",
    "PMI_JOBID",
    "PMIX_NAMESPACE",
)
FOLDER = ".rla-jobs"
FRESH_S = 86400.0  # an older description is of a former job with the same name
RESUMED_WAIT_S = 120.0  # rank 0 may have to wait for an agent, or to fetch from the master
APART_WAIT_S = 2.0  # where rank 0 is on another machine, and this one's disk should not show its run
SILENT_S = 10.0  # after which a rank says that it still waits for a run to join
BEFORE_S = 60.0  # rank 0 may have opened its run so long before another rank came this far
POLL_S = 0.02

_began = time.time()
_opened: dict[tuple[str, str], int] = {}  # how many runs this process opened: all ranks open as many
_told: set[tuple[str, int, str, str]] = set()  # lines in RLA_RUN_FILE
opened_here: set[str] = set()  # log folders of items that this process opened
_failed: set[str] = set()


def open_run(
    opening: Opening,
    sinks: Iterable[str],
    settings: AgentConfig,
    *,
    callback: Callable[[Row], object] | None = None,
    comm: Comm | None = None,
    clock: TimeStepHolder | None = None,
) -> Run:
    """Open the stream of a described run whose folders exist; its clock is by default the current one."""
    places = find_places()
    from rla_client.config.machine_config import settings_of_run, warn_of_machine_keys  # noqa: PLC0415 - not at import

    opening = opening._replace(**settings_of_run(settings))
    warn_of_machine_keys(settings, opening.config)
    outbox = Outbox(
        places,
        opening,
        settings,
        as_worker=lambda: worker_opening(opening),
        config_path=None if opening.config is None else Path(opening.config),
    )
    folder = os.path.join(opening.root, opening.folders[LOG])
    clock = clock or current_clock()
    logger = Logger(folder, sinks, outbox, callback=callback, comm=comm, clock=clock)
    logger.for_workers = json.dumps({"sinks": list(sinks), "opening": opening.to_fields()})
    _tell_opened(os.environ.get(RUN_FILE_VARIABLE, ""), opening)
    return Run(logger, opening, settings)


def _tell_opened(path: str, opening: Opening) -> None:
    """Append the item of `opening` to the file at `path`; a plain folder is none."""
    told = path, os.getpid(), opening.root, opening.title
    if not path or not opening.table or told in _told:
        return
    _told.add(told)
    found = {"data_root": opening.root, "table": opening.table, "index": opening.index}
    line = json.dumps({**found, "run_key": opening.run_key}) + "\n"
    try:
        append_line(path, line.encode())
    except (OSError, ValueError) as error:
        if path not in _failed:
            _failed.add(path)
            import logging  # noqa: PLC0415 - not at import of the package

            logging.getLogger("rla_client").warning(
                "RLA_RUN_FILE: nobody is told which runs are opened here: %s", error
            )


# -- an item -------------------------------------------------------------------------------------


def open_item(data: RunData, item: Item, **continuing: object) -> Run:
    """Open a stream for `item` and make it the open run of `data`.

    Args:
        data: whose run it becomes.
        item: its folders are there.
        **continuing: further fields of the opening: run, epoch, continues, parent.
    """
    setup = data.setup
    config = setup.configured()[1]
    opening = make_opening(
        root=item.root,
        folders={
            **{kind: item.relative(kind) for kind in FOLDER_KINDS},
            ARCHIVE_TESTER: os.path.dirname(item.relative(ARCHIVE_TESTER)),
        },
        sinks=config.log_used,
        names={},
        item={
            "table": item.table,
            "index": item.index.path,
            "master": setup.is_master_node,
            "run_key": setup.run_id or "",
            "replicate": config.send_log_file and not setup.is_master_node,
            **continuing,
        },
        config_path=config.path,
    )
    data.item, data.disabled = item, None
    opened_here.add(item.folder(LOG))
    setup.record_date = item.opened
    run = open_run(opening, config.log_used, config.agent, callback=setup.log_callback_fn, clock=data.clock)
    run.logger.secrets = setup.secrets()
    run.logger.take_parameters = data.add_hyper_param
    if setup.keeps_console:
        from rla_client.run.console import keep_console  # noqa: PLC0415 - not at import of the package

        keep_console(run, config.agent)
    data.run = run
    return run


def bind_recorders(run: Run, item: Item) -> None:
    """Have recorders of figures and media write through the stream of `run`, the current one."""
    from rla_client.media.recording_target import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

    bind(RecordingTarget(Path(item.folder(OTHER_RESULTS)), run.outbox, warn))


@standard_taken()
def capture_code(data: RunData, run: Run, item: Item, tell: Callable[[str], None] = warn) -> None:
    """Capture code and environment; whatever goes wrong is told."""
    from rla_client.code.backup import back_up_code  # noqa: PLC0415 - not at import of the package
    from rla_client.code.backup_plan import BackupPlan  # noqa: PLC0415
    from rla_client.code.environment import EnvironmentCapture  # noqa: PLC0415 - not at import of the package

    setup, config = data.setup, data.setup.configured()[1]
    if setup.project_root is None:
        return
    root = Path(setup.project_root)
    capture = EnvironmentCapture(root, secrets=setup.secrets())
    backup, found = config.backup_config, setup.found_code
    if found is not None:
        tell(found.told())
    plan = BackupPlan(
        code_root=root,
        lib_mode=config.project_type.backup_code_by == "lib",
        code_dirs=backup.backup_code_dir if found is None else found.code_dirs(),
        lib_dir=backup.lib_dir,
        run_files=tuple(setup.run_file),
        ignore_file=None if setup.ignore_file_path is None else Path(setup.ignore_file_path),
        ignore_rules=backup.ignore_code_paths,
        data_roots=(Path(item.root), find_places().state),  # reading a spool lock would drop it
        secrets=config.secret_files,
        sources_only=found is not None,
    )
    report = back_up_code(plan, run.outbox, Path(item.folder(CODE)), tell)
    capture.write(lambda content: run.file(LOG, "environment.json", content), report)


def say_where(data: RunData, run: Run, item: Item) -> None:
    """Tell in the run's own log where it lies."""
    run.logger.print_text(f"rla: this run is stored in {item.folder(LOG)}\n")
    tell_folders(data, run.logger)


def tell_folders(data: RunData, to: Logger, *, echo: bool = False) -> None:
    """Log the folders of the run."""
    for name in FOLDERS_TOLD:
        to.log(f"{name.replace('log_dir', 'log dir')}: {getattr(data, name)}", echo=echo)


# -- a plain folder ------------------------------------------------------------------------------


def open_plain_run(  # noqa: PLR0913 - as `logger.configure`
    folder: str,
    sinks: tuple[str, ...],
    callback: Callable[[Row], object] | None,
    comm: Comm | None,
    suffix: str,
    names: dict[str, str],
    *,
    clock: TimeStepHolder | None = None,
) -> Run:
    """Open a run that logs into a plain folder.

    Raises:
        ArgumentError: the folder cannot be made.
    """
    from rla_client.config.schema import AgentConfig  # noqa: PLC0415 - not at import of the package

    settings = AgentConfig()
    if disabled() or rank() > 0:
        outputs = [name for name in sinks if name != "stdout" or rank() == 0]
        where = DisabledRun("plain", "", "noip").log_dir
        return Run(Logger(where, outputs, callback=callback, comm=comm, clock=clock), None, settings)
    check_path(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"cannot make the log folder {folder}: {error.strerror or error}") from error
    if suffix:
        for output in (name for name in OUTPUT_NAMES if name in SINKS):
            stem, ending = os.path.splitext(OUTPUT_NAMES[output])
            names.setdefault(output, f"{stem}{suffix}{ending}")
    opening = make_opening(root=folder, folders={"log": "."}, sinks=sinks, names=names, item={})
    run = open_run(opening, sinks, settings, callback=callback, comm=comm, clock=clock)
    run.logger.folder = folder
    return run


def default_folder(folder: str | os.PathLike[str] | None) -> str:
    """`folder`, else `$OPENAI_LOGDIR`, else a new name among the temporary files."""
    if folder is not None:
        return os.fspath(folder)
    stamp = datetime.now().strftime("openai-%Y-%m-%d-%H-%M-%S-%f")  # noqa: DTZ005 - local, as baselines
    if os.environ.get("OPENAI_LOGDIR"):
        return os.environ["OPENAI_LOGDIR"]
    import tempfile  # noqa: PLC0415 - not at import of the package

    return os.path.join(tempfile.gettempdir(), stamp)


def check_sinks(format_strs: Iterable[str] | None) -> tuple[str, ...]:
    """The outputs asked for, else those of `$OPENAI_LOG_FORMAT`, else stdout, log, csv.

    Raises:
        ArgumentError: one that does not exist.
    """
    if format_strs is None:
        format_strs = os.environ.get("OPENAI_LOG_FORMAT", "stdout,log,csv").split(",")
    names = tuple(name for name in format_strs if name)
    for name in names:
        if name not in SINKS:
            raise ArgumentError(f"unknown output {name!r} in format_strs; choose from {', '.join(SINKS)}")
    return names


# -- ranks above 0 -------------------------------------------------------------------------------


def tell_rank(what: str) -> None:
    """Say something about this rank on stderr: its outputs are rank 0's, or none."""
    import logging  # noqa: PLC0415 - not at import of the package

    logging.getLogger("rla_client").warning("rank %d %s", rank(), what)


def why_apart(root: str, meeting: Path | None) -> str:
    """Why this rank cannot see the run that rank 0 opens; empty where it may.

    Args:
        root: data root.
        meeting: where rank 0 would tell of its run; None outside of a job.
    """
    if meeting is None:
        return (
            "nothing tells which job it belongs to: start all ranks with torchrun, srun or mpirun, or give "
            "them the same MASTER_ADDR and MASTER_PORT"
        )
    elsewhere = _rank_zero_elsewhere()
    if not elsewhere or meeting.exists() or network_file_system(Path(root)) is not None:
        return ""
    return (
        f"rank 0 is on another machine ({elsewhere}), and {os.path.abspath(root)} is on a disk of this one: "
        "give all ranks a data root that they share"
    )


def _rank_zero_elsewhere() -> str:
    """The variable that says that rank 0 is not on this machine; empty without one."""
    node = os.environ.get("SLURM_NODEID", "")
    if node.isdecimal() and int(node) > 0:
        return f"SLURM_NODEID={node}"
    address = os.environ.get("MASTER_ADDR", "")
    return "" if not address or _is_here(address) else f"MASTER_ADDR={address}"


def _is_here(address: str) -> bool:
    """Whether a host's name or address is this machine's: nobody else's can be bound."""
    name = os.uname().nodename
    if address in {"localhost", name, name.partition(".")[0]}:
        return True
    import socket  # noqa: PLC0415 - rarely needed

    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, _protocol, _name, place in found:
        with suppress(OSError), socket.socket(family, kind) as trial:
            trial.bind(place)
            return True
    return False


def join_rank_zero(config: Config, path: Path, end_wait_s: float, clock: TimeStepHolder) -> Run:
    """A run of this rank whose records join rank 0's run as soon as that is told at `path`.

    Args:
        config: of the run.
        path: where rank 0 tells of it.
        end_wait_s: how long what was recorded waits for that when this rank ends.
        clock: of the run.
    """
    began, owner = time.time(), os.getpid()
    silent_until = time.monotonic() + SILENT_S

    def opening() -> Opening | None:
        nonlocal silent_until
        found = read_published(path, began)
        told = None if found is None else _opening_in(found)
        after = (
            _earlier_streams(told) if os.getpid() == owner else None
        )  # a child of it has a label of its own
        joined = None if told is None else worker_opening(told, after=after)
        if joined is None and time.monotonic() > silent_until:
            silent_until = math.inf
            what = "has opened no run that this rank could join" if told is None else f"writes to {told.root}"
            tell_rank(
                f"still waits in {path.parent} for rank 0, which {what}: what it records is in memory, and "
                "lost where that stays so"
            )
        return joined

    outbox = Outbox(find_places(), None, config.agent, as_worker=opening, opening_wait_s=end_wait_s)
    sinks = set(config.log_used) - {"stdout"}  # rank 0 prints
    return Run(Logger(None, sinks, outbox, clock=clock), None, config.agent)


def _earlier_streams(opening: Opening | None) -> tuple[str, ...] | None:
    """The streams of a run in this spool, where rank 0 continues it; None where it is a new one."""
    if opening is None or opening.continues is None:
        return None
    from rla_client.run.find import all_streams  # noqa: PLC0415 - rarely needed

    return tuple(
        stream.folder.name
        for stream in all_streams(find_places())
        if (told := stream.opening) and told.run == opening.run and told.epoch < opening.epoch
    )


def publish(
    root: str,
    table: str,
    opening: Opening | None,
    sinks: tuple[str, ...],
    resumed: tuple[str, int | None] | None = None,
) -> None:
    """Let other ranks of this job join the run. Does nothing outside of a job.

    Args:
        root: data root.
        table: task table name.
        opening: describes the run; None: it stores nothing.
        sinks: its outputs.
        resumed: name and time-step of the checkpoint that it continues from.
    """
    path = job_file(root, table, next_number(root, table))
    if path is None or os.environ.get("WORLD_SIZE", "2") == "1":
        return
    try:
        path.parent.mkdir(exist_ok=True)
        told = {} if opening is None else opening.to_fields()
        content = json.dumps({"opening": told, "sinks": sinks, "time": time.time(), "resumed": resumed})
        write_atomic(path, content.encode(), mode=0o600, durable=False)
        _sweep(path.parent)
    except OSError:
        return  # the other ranks then drop their records; rank 0 continues


def next_number(root: str, table: str) -> int:
    """How many runs of this table this process opens, with this one."""
    place = os.path.abspath(root), table
    _opened[place] = _opened.get(place, 0) + 1
    return _opened[place]


def job_file(root: str, table: str, number: int) -> Path | None:
    """Where the ranks of this job meet for their run `number` in a table; None outside of a job."""
    key = [f"{name}={os.environ[name]}" for name in JOB_VARIABLES if name in os.environ]
    if not key:
        return None
    text = "\n".join([*key, _launcher(), table, str(number)])
    import hashlib  # noqa: PLC0415 - not at import of the package

    return Path(root) / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _launcher() -> str:
    """What tells this job from another one of the same name, where all ranks share one parent."""
    if os.environ.get("LOCAL_WORLD_SIZE", "") != os.environ.get("WORLD_SIZE", "-"):
        return ""
    parent = os.getppid()
    try:
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = ""
    return f"{os.uname().nodename} {parent} {started}"


def _sweep(folder: Path) -> None:
    """Drop descriptions of jobs that nobody can join any more."""
    for old in folder.glob("*.json"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > FRESH_S:
                old.unlink()


def read_published(path: Path | None, since: float, before_s: float = FRESH_S) -> dict[str, Any] | None:
    """What rank 0 put at `path` after `since`, or at most `before_s` before; None when there is none yet."""
    if path is None:
        return None
    try:
        found: dict[str, Any] = json.loads(read_small(path))
    except (OSError, ValueError):
        return None
    return found if found.get("time", 0.0) > since - before_s else None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where rank 0's run continues.

    Attributes:
        item: the run; None where it began anew.
        name: of the checkpoint's series.
        time_step: of the checkpoint; None without one.
    """

    item: Item | None
    name: str = ""
    time_step: int | None = None


def await_resumed(path: Path, wait_s: float = RESUMED_WAIT_S) -> Resumed | None:
    """Where rank 0's run continues, once it has said so; None when it did not in time."""
    began = time.monotonic()
    silent_s = SILENT_S
    while True:
        found = read_published(path, _began, BEFORE_S)
        if found is not None:
            opening = _opening_in(found)
            if _is_of_this_job(opening):
                return _resumed(opening, found.get("resumed"))
        waited = time.monotonic() - began
        if waited > wait_s:
            return None
        if waited > silent_s:
            silent_s = math.inf
            tell_rank(
                f"waits for rank 0 to tell in {path.parent} where the run continues, for {wait_s:.0f} s"
            )
        time.sleep(POLL_S)


def _resumed(opening: Opening | None, resumed: tuple[str, int | None] | None) -> Resumed:
    index = None if opening is None else RunIndex.parse(opening.index)
    if resumed is None or opening is None or index is None:
        return Resumed(None)
    return Resumed(Item(opening.root, opening.table, index, index.opened), resumed[0], resumed[1])


def _opening_in(found: dict[str, Any]) -> Opening | None:
    with suppress(RemoteProtocolError, KeyError):
        return Opening.from_fields(found["opening"])
    return None


def _is_of_this_job(opening: Opening | None) -> bool:
    """False where the process that opened the run ran on this machine and is gone."""
    if opening is None or opening.host != os.uname().nodename:
        return True
    return os.path.exists(f"/proc/{opening.pid}")
