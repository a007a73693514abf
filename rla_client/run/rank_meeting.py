"""Meeting place of the ranks of a distributed job.

By default ranks above 0 store nothing, or they join rank 0's run. Rank 0 publishes its run's description in
the store of torch's process group, and in its data root, of which the master gets a copy, under a name that
all ranks of the job share (torchrun's run id and master port, or the Slurm job and step); the others read it
from the first place where it appears. On another machine they write a part of the run (`run_part`). They do
not block: until the description is there, their records are buffered in memory in order. Only where the run
may be resumed does a rank wait, RESUMED_WAIT_S at most, for rank 0 to publish the point from which it
continues, since a rank's own look at the files would be too early or too late. A rank that can know that
nothing will come (`why_apart`) warns at once. Records that are buffered when the rank ends wait `exit_wait_s`
more: rank 0 may still be opening its run.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.agent.machine_name import machine_name
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import ArgumentError, NoSuchRunError, RemoteProtocolError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.file_systems import network_file_system
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import CHECKPOINT, JOBS_FOLDER, PRINTED
from rla_client.contract.run_file import LIVE_STATES, run_file, seconds
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import Opening
from rla_client.run import torch_store
from rla_client.run.item import ItemFolders
from rla_client.run.master_meeting import RELAYED, MasterMeeting
from rla_client.run.open_stream import process_began
from rla_client.run.opening_frame import worker_opening
from rla_client.run.rank_variables import RANK_VARIABLES, rank
from rla_client.run.record.run_logger import Logger
from rla_client.run.run import Run
from rla_client.run.run_part import part_of_told
from rla_client.run.temporary_item import RankZeroFolder
from rla_client.stream.clock import TimeStepHolder
from rla_client.stream.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rla_client.config.schema import Config
    from rla_client.run.configure import RunSetup


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
_NO_JOB = (
    "nothing tells which job it belongs to: start all ranks with torchrun, srun or mpirun, or give "
    "them the same MASTER_ADDR and MASTER_PORT"
)
FRESH_S = 86400.0  # an older description is of a former job with the same name
RESUMED_WAIT_S = 120.0  # rank 0 may have to wait for an agent, or to fetch from the master
APART_WAIT_S = 2.0  # where rank 0 is on another machine, and this one's disk is not expected to have its run
SILENT_S = 10.0  # after which a rank warns that it still waits for a run to join
BEFORE_S = 60.0  # rank 0 may have opened its run so long before another rank does
POLL_S = 0.02
_opened: dict[tuple[str, str], int] = {}  # how many runs this process opened: all ranks open as many


def tell_rank(what: str) -> None:
    """Print a message about this rank on stderr, since its outputs are rank 0's, or none."""
    import logging  # noqa: PLC0415 - not at import of the package

    logging.getLogger("rla_client").warning("rank %d %s", rank(), what)


def check_job() -> None:
    """Check that this rank can meet rank 0: else its records would be lost when it ends.

    Raises:
        ArgumentError: its job cannot be identified.
    """
    if not any(name in os.environ for name in JOB_VARIABLES) and not torch_store.has_store():
        raise ArgumentError(
            f"all_ranks=True: rank {rank()} cannot join the run of rank 0, as {_NO_JOB}; "
            "without all_ranks it stores nothing"
        )


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where rank 0 publishes a run.

    Attributes:
        key: in the store of torch's process group.
        path: in the data root; None where the job cannot be identified.
        master: the search on the master, which may be all that rank 0's machine shares.
    """

    key: str
    path: Path | None
    master: MasterMeeting | None = None

    def read(self, since: float, before_s: float = FRESH_S) -> dict[str, Any] | None:
        """Rank 0's description; None where there is none (yet). See `read_published`."""
        found = self.seen(since, before_s)
        return self.master.look() if found is None and self.master is not None else found

    def seen(self, since: float, before_s: float = FRESH_S) -> dict[str, Any] | None:
        """As `read`, without a request to the master."""
        text = torch_store.look(self.key)
        if text:
            with suppress(ValueError):
                found: dict[str, Any] = json.loads(text)
                return found
        published = read_published(self.path, since, before_s)
        if published is None or self.path is None:
            return None
        relayed = published.get(RELAYED)
        former = _is_old(published) if relayed else has_ended(published, self.path.parent.parent)
        return None if former else published

    def why_apart(self, root: str) -> str:
        """Why this rank cannot see the run that rank 0 opens; empty where it may.

        Args:
            root: data root.
        """
        if torch_store.has_store():
            return ""
        if self.path is None:
            return _NO_JOB
        elsewhere = _rank_zero_elsewhere()
        if (
            not elsewhere
            or self.master is not None
            or self.path.exists()
            or network_file_system(Path(root)) is not None
        ):
            return ""
        return (
            f"rank 0 is on another machine ({elsewhere}), and {os.path.abspath(root)} is on a disk of this "
            "one: give all ranks a data root that they share, or one master (SEND_LOG_FILE), or open the run "
            "after torch.distributed.init_process_group()"
        )

    def __str__(self) -> str:
        return "the store of torch's process group" if self.path is None else str(self.path.parent)


def meeting_of(root: str, table: str, number: int, config: Config | None = None) -> Meeting | None:
    """The meeting of this job's ranks for their run `number` in a table; None outside of a job.

    Args:
        root: data root.
        table: task table name.
        number: of the run.
        config: of a rank above 0, which may name a master.
    """
    path = job_file(root, table, number)
    if path is None and not torch_store.has_store():
        return None
    master = None
    if path is not None and config is not None and config.path is not None and config.send_log_file:
        alone = _rank_zero_elsewhere() and network_file_system(Path(root)) is None
        if alone and config.remote_setting.named:
            master = MasterMeeting(config, path, process_began - BEFORE_S, tell_rank)
    return Meeting(_key(table, number), path, master)


def _key(table: str, number: int) -> str:
    return f"rla/{table}/{number}"


def _is_old(found: dict[str, Any]) -> bool:
    """Whether it is of a former job of the same name, as far as the clocks of two machines agree."""
    return bool(found.get("time", 0.0) < process_began - 2 * BEFORE_S)


def has_ended(published: dict[str, Any], root: Path) -> bool:
    """Whether the published run is of a former job of the same name, and ended before this process began.

    Where all ranks share a launcher, each job has a name of its own (`_launcher`). Else a rank may be late,
    so that an old run counts as long as it lives. While its state is unknown, it does not count as ended.

    Args:
        published: rank 0's description in the data root.
        root: the data root, which has the run's own file.
    """
    told, opened = _opening_in(published), float(published.get("time", 0.0))
    if told is None or opened >= process_began or _launcher():
        return False
    late = opened < process_began - BEFORE_S  # else both may have begun at the same time
    gone = _is_gone(told, published)
    run = run_file(root, told.table, told.index)
    epoch = run.get("epoch")
    if run.get("run_id") != told.run or not isinstance(epoch, int) or epoch < told.epoch:
        return gone or late
    if epoch > told.epoch:  # rank 0, or another job, has opened it again
        return True
    if run.get("state") in LIVE_STATES:
        return gone or (late and (seconds(run.get("updated")) or 0.0) < process_began)
    return late or (seconds(run.get("closed")) or 0.0) < process_began


def _is_gone(told: Opening, published: Mapping[str, Any]) -> bool:
    """Whether the process that opened the run was on this machine, and has ended."""
    if told.host != os.uname().nodename or os.path.exists(f"/proc/{told.pid}"):
        return False
    machine = machine_name(find_places())
    return bool(published.get("machine", machine) == machine)


def _rank_zero_elsewhere() -> str:
    """The variable that says that rank 0 is not on this machine; empty without one."""
    node = os.environ.get("SLURM_NODEID", "")
    if node.isdecimal() and int(node) > 0:
        return f"SLURM_NODEID={node}"
    group = os.environ.get("GROUP_RANK", "")  # torchrun's number of the machine
    if group.isdecimal() and int(group) > 0:
        return f"GROUP_RANK={group}"
    address = os.environ.get("MASTER_ADDR", "")
    return "" if not address or _is_here(address) else f"MASTER_ADDR={address}"


def _is_here(address: str) -> bool:
    """Whether a host's name or address is this machine's, so that it can be bound."""
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


def join_rank_zero(setup: RunSetup, meeting: Meeting, end_wait_s: float, clock: TimeStepHolder) -> Run:
    """A run of this rank whose records join rank 0's run as soon as that is published.

    Args:
        setup: of the run.
        meeting: where rank 0 publishes it.
        end_wait_s: how long records wait for that when this rank ends.
        clock: of the run.
    """
    began, owner, config = time.time(), os.getpid(), setup.configured()[1]
    silent_until = time.monotonic() + SILENT_S
    refused = ""

    def opening() -> Opening | None:
        nonlocal silent_until, refused
        found = meeting.read(began)
        told = None if found is None else _opening_in(found)
        joined = None
        if told is not None and found is not None:
            try:
                here = part_of_told(told, found, setup)
                after = _earlier_streams(here) if os.getpid() == owner else None
                joined = worker_opening(here, after=after, ends_part=os.getpid() == owner)
            except NoSuchRunError as error:
                if str(error) != refused:
                    refused = str(error)
                    tell_rank(f"cannot join the run of rank 0; its records are not kept: {refused}")
        if joined is None and not refused and time.monotonic() > silent_until:
            silent_until = math.inf
            what = "has opened no run that this rank could join" if told is None else f"writes to {told.root}"
            tell_rank(
                f"still waits in {meeting} for rank 0, which {what}: what it records is in memory, and "
                "lost where that stays so"
            )
        return joined

    outbox = Outbox(find_places(), None, config.agent, as_worker=opening, opening_wait_s=end_wait_s)
    sinks = set(config.log_used) - PRINTED  # rank 0 prints
    return Run(Logger(None, sinks, outbox, clock=clock), None, config.agent)


def _earlier_streams(opening: Opening | None) -> tuple[str, ...] | None:
    """The streams of a run in this spool, where rank 0 continues it; None where it is a new one."""
    if opening is None or opening.continues is None:
        return None
    from rla_client.run.resume.earlier_streams import all_streams  # noqa: PLC0415 - rarely needed

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
    resumed: tuple[str, int | None, float | None] | None = None,
) -> None:
    """Publish the run for other ranks of this job. Does nothing outside of a job.

    Args:
        root: data root.
        table: task table name.
        opening: describes the run; None: it stores nothing.
        sinks: its outputs.
        resumed: name and time-step of the checkpoint that it continues from, and when that was saved.
    """
    number = next_number(root, table)
    if os.environ.get("WORLD_SIZE", "2") == "1":
        return
    meeting = meeting_of(root, table, number)
    if meeting is None and torch_store.may_come() and any(name in os.environ for name in RANK_VARIABLES):
        meeting = Meeting(_key(table, number), None)
    if meeting is None:
        return
    told = {} if opening is None else opening.to_fields()
    places = find_places()
    content = json.dumps(
        {
            "opening": told,
            "sinks": sinks,
            "time": time.time(),
            "resumed": resumed,
            "machine": machine_name(places),
        }
    )
    torch_store.put(meeting.key, content)
    if meeting.path is None:
        return
    try:
        meeting.path.parent.mkdir(exist_ok=True)
        write_atomic(meeting.path, content.encode(), mode=0o600, durable=False)
        _sweep(meeting.path.parent)
    except OSError:
        return  # the other ranks then drop their records; rank 0 continues


def next_number(root: str, table: str) -> int:
    """Number of this run among those of its table that this process opens."""
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

    return Path(root) / JOBS_FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _launcher() -> str:
    """Identity of this job among those of the same name, where all ranks share one parent."""
    if os.environ.get("LOCAL_WORLD_SIZE", "") != os.environ.get("WORLD_SIZE", "-"):
        return ""
    parent = os.getppid()
    try:
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = ""
    return f"{os.uname().nodename} {parent} {started}"


def _sweep(folder: Path) -> None:
    """Delete descriptions of jobs that nobody can join any more."""
    for old in folder.glob("*.json"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > FRESH_S:
                old.unlink()


def read_published(path: Path | None, since: float, before_s: float = FRESH_S) -> dict[str, Any] | None:
    """Rank 0's description at `path`, written after `since` or up to `before_s` before; None without one."""
    if path is None:
        return None
    try:
        found: dict[str, Any] = json.loads(read_small(path))
    except (OSError, ValueError):
        return None
    return found if found.get("time", 0.0) > since - before_s else None


def checkpoints_of_rank_zero(meeting: Meeting | None) -> RankZeroFolder | None:
    """Folder of rank 0's checkpoints; None where this process does not see it."""
    found = None if meeting is None else meeting.seen(process_began, BEFORE_S)
    opening = None if found is None else _opening_in(found)
    if found is None or opening is None or CHECKPOINT not in opening.folders or _is_gone(opening, found):
        return None
    folder = Path(opening.folder(CHECKPOINT))
    return RankZeroFolder(folder, opening.run) if folder.is_dir() else None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where rank 0's run continues.

    Attributes:
        item: the run; None where it began anew.
        name: of the checkpoint's series.
        time_step: of the checkpoint; None without one.
    """

    item: ItemFolders | None
    name: str = ""
    time_step: int | None = None


def await_resumed(meeting: Meeting, root: str, wait_s: float = RESUMED_WAIT_S) -> Resumed | None:
    """Where rank 0's run continues, once that is published; None where it was not in time.

    Args:
        meeting: where rank 0 publishes it.
        root: data root of this process, for a run of another machine.
        wait_s: how long to wait for that.
    """
    began = time.monotonic()
    silent_s = SILENT_S
    while True:
        found = meeting.read(process_began, BEFORE_S)
        if found is not None:
            opening = _opening_in(found)
            if opening is None or not _is_gone(opening, found):
                return _resumed(opening, found, root)
        waited = time.monotonic() - began
        if waited > wait_s:
            return None
        if waited > silent_s:
            silent_s = math.inf
            tell_rank(f"waits for rank 0 to tell in {meeting} where the run continues, for {wait_s:.0f} s")
        time.sleep(POLL_S)


def _resumed(opening: Opening | None, found: Mapping[str, Any], own_root: str) -> Resumed:
    index, resumed = None if opening is None else RunIndex.parse(opening.index), found.get("resumed")
    if resumed is None or opening is None or index is None:
        return Resumed(None)
    root = opening.root
    if found.get("machine", "") != machine_name(find_places()) and not os.path.isdir(root):
        root = os.path.abspath(own_root)
    return Resumed(ItemFolders(root, opening.table, index, index.opened), resumed[0], resumed[1])


def _opening_in(found: dict[str, Any]) -> Opening | None:
    with suppress(RemoteProtocolError, KeyError):
        return Opening.from_fields(found["opening"])
    return None
