"""Ranks above 0 of a distributed job: dropped by default, or joined to rank 0's run.

Rank 0 publishes its run's description under a name that all ranks of the job share (torchrun's
run id and master port, or the Slurm job and step); the others pick it up. They do not wait: until
it is there, their records wait in memory in order. Only where the run may be resumed does a rank wait,
RESUMED_WAIT_S at most, for what rank 0 says about the point it continues from: a look of its own would
come too early or too late.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.files import read_small, write_atomic
from rla_client.contract.layout import RunIndex
from rla_client.contract.opening import Opening
from rla_client.contract.paths import find_places
from rla_client.run.item import Item
from rla_client.run.recording import Logger
from rla_client.run.run import Run, worker_opening
from rla_client.stream.outbox import Outbox

if TYPE_CHECKING:
    from rla_client.config.schema import Config

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
)
FOLDER = ".rla-jobs"
FRESH_S = 86400.0  # an older description is of a former job with the same name
RESUMED_WAIT_S = 120.0  # rank 0 may have to wait for an agent, or to fetch from the master
BEFORE_S = 60.0  # rank 0 may have opened its run so long before another rank came this far
POLL_S = 0.02

_began = time.time()
_opened: dict[tuple[str, str], int] = {}  # how many runs this process opened: all ranks open as many


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


def next_number(root: str, table: str) -> int:
    """How many runs of this table this process opens, with this one."""
    place = os.path.abspath(root), table
    _opened[place] = _opened.get(place, 0) + 1
    return _opened[place]


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
    deadline = time.monotonic() + wait_s
    while True:
        found = read_published(path, _began, BEFORE_S)
        if found is not None and _is_of_this_job(_opening_in(found)):
            return _resumed(found)
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)


def _opening_in(found: dict[str, Any]) -> Opening | None:
    with suppress(RemoteProtocolError, KeyError):
        return Opening.from_fields(found["opening"])
    return None


def _is_of_this_job(opening: Opening | None) -> bool:
    """False where the process that opened the run ran on this machine and is gone."""
    if opening is None or opening.host != os.uname().nodename:
        return True
    return os.path.exists(f"/proc/{opening.pid}")


def _resumed(found: dict[str, Any]) -> Resumed:
    opening, resumed = _opening_in(found), found.get("resumed")
    index = None if opening is None else RunIndex.parse(opening.index)
    if resumed is None or opening is None or index is None:
        return Resumed(None)
    return Resumed(Item(opening.root, opening.table, index, index.opened), resumed[0], resumed[1])


def join_rank_zero(config: Config, path: Path | None) -> Run:
    """A run of this rank whose records join rank 0's run as soon as that is told at `path`."""
    began = time.time()

    def opening() -> Opening | None:
        found = read_published(path, began)
        told = None if found is None else _opening_in(found)
        return None if told is None else worker_opening(told)

    outbox = Outbox(find_places(), None, config.agent, as_worker=opening, waits_for_opening=True)
    sinks = set(config.log_used) - {"stdout"}  # rank 0 prints
    return Run(Logger(None, sinks, outbox), None, config.agent)
