"""What the doctor looks at and finds; its checks of configuration, folders, disks, spool and database."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rla_agent.pipeline.stream import read_opening
from rla_agent.replicate.report import attention, replication_status
from rla_agent.service.control import ask_status, left_behind
from rla_agent.store.lock import describe_holder, read_holder, visible_holder
from rla_client.config.schema import CONFIG_NAME, Config, load_config
from rla_client.contract.agent_process import Unit, agent_alive, installed_unit
from rla_client.contract.errors import ConfigError, PlaceError, RlaError, SpoolError
from rla_client.contract.paths import (
    MAX_SOCKET_PATH_BYTES,
    NOWHERE,
    RUNTIME_VARIABLE,
    STATE_VARIABLE,
    Places,
    file_system_type,
    find_places,
    folder_problem,
    network_file_system,
    program_problem,
    why_elsewhere,
)
from rla_client.contract.segments import check_stream, spool_bytes, stream_names, writer_alive

LEVELS = ("fault", "warning", "note")
ASK_TIMEOUT_S = 3.0
TMPFS = 0x01021994
RAMFS = 0x858458F6
FULL_PART = 0.8  # of spool_max_bytes
ROOT_FREE_BYTES = 100 << 20
FREE_INODES = 1000
ENTRIES_LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        name: stable identifier.
        level: fault, warning or note.
        what: what is wrong.
        fix: what to do.
    """

    name: str
    level: str
    what: str
    fix: str

    def to_plain(self) -> dict[str, str]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the checks look at.

    Attributes:
        places: of the agent.
        config_path: the rla_config.yaml, None without one.
        config: what it says; the defaults where it has faults.
        config_faults: those.
        environment: of this process.
        user: login name.
        system: where the machine's own folders (etc, proc, var, dev) begin.
        now: Unix seconds.
        alive: an agent holds the lock.
        holder: what the lock file says.
        status: what the agent says, None where it says nothing.
        replication: what needs attention in replication, as `what` and `fix`.
        unit: the installed unit.
    """

    places: Places
    config_path: Path | None = None
    config: Config = field(default_factory=Config)
    config_faults: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    system: Path = Path("/")
    now: float = 0.0
    alive: bool = False
    holder: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] | None = None
    replication: tuple[Mapping[str, str], ...] = ()
    unit: Unit | None = None

    @classmethod
    def here(cls, config_path: Path | None, system: Path = Path("/")) -> Surroundings:
        """This process's surroundings; the configuration of this folder unless one is named."""
        places = find_places()
        if config_path is None and Path(CONFIG_NAME).exists():
            config_path = Path(CONFIG_NAME)
        config, faults = _config(config_path)
        alive = agent_alive(places)
        return cls(
            places=places,
            config_path=config_path,
            config=config,
            config_faults=faults,
            environment=dict(os.environ),
            user=_user(),
            system=system,
            now=time.time(),
            alive=alive,
            holder=read_holder(places) if alive else {},
            status=_status(places) if alive else None,
            replication=tuple(attention(replication_status(places.state))),
            unit=installed_unit(),
        )

    @property
    def agent_pid(self) -> int | None:
        """Process id of the agent that holds the lock; None without one that can be seen from here."""
        return visible_holder(self.places) if self.alive else None

    def agent_environment(self) -> dict[str, str] | None:
        """What the agent was started with; None when there is none or it cannot be read."""
        try:
            raw = Path(f"/proc/{self.agent_pid}/environ").read_bytes()
        except OSError:
            return None
        pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _config(path: Path | None) -> tuple[Config, tuple[str, ...]]:
    if path is None:
        return Config(), ()
    try:
        return load_config(path), ()
    except ConfigError as error:
        return Config(), tuple(error.faults)


def _status(places: Places) -> Mapping[str, Any] | None:
    try:
        return ask_status(places, ASK_TIMEOUT_S)
    except RlaError:
        return None


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


# -- checks -------------------------------------------------------------------------------------


def check_config(around: Surroundings) -> Iterator[Finding]:
    """Every fault of the configuration."""
    for fault in around.config_faults:
        what = f"{around.config_path}: {fault}"
        yield Finding("config", "fault", what, "correct that line, then: rla-agent check-config")


def check_folders(around: Surroundings) -> Iterator[Finding]:
    """State and runtime folders: ours, private, writable, on a path that nobody else can change."""
    for name, level, folder, variable in (
        ("state", "fault", around.places.state, STATE_VARIABLE),
        ("runtime", "warning", around.places.runtime, RUNTIME_VARIABLE),  # the agent finds another one
    ):
        problem = folder_problem(folder)
        if problem is not None:
            yield Finding(f"{name}-permissions", level, problem.what, _fix(problem, variable))
        elif folder.exists() and stat.S_IMODE(folder.stat().st_mode) != 0o700:  # noqa: PLR2004 - the owner's
            what = f"{folder} has mode {stat.S_IMODE(folder.stat().st_mode):o} instead of 700"
            yield Finding(f"{name}-permissions", level, what, f"chmod 700 {folder}")
    elsewhere = why_elsewhere()
    if elsewhere is not None:
        what = f"the state is in {around.places.state}: {elsewhere.what}"
        yield Finding("state-elsewhere", "warning", what, _fix(elsewhere, STATE_VARIABLE))


def _fix(problem: PlaceError, variable: str) -> str:
    return problem.fix.removeprefix("run: ").replace("use a folder", f"set {variable} to a folder")


def check_interpreters(around: Surroundings) -> Iterator[Finding]:
    """Interpreters that somebody else could exchange: this one, and those of the runs in the spool."""
    programs = {sys.executable}
    with suppress(OSError):
        for name in stream_names(around.places.spool):
            with suppress(RlaError, OSError):
                programs.add(read_opening(around.places.spool / name)[0].python)
    for program in sorted(filter(os.path.exists, programs)):
        problem = program_problem(program)
        if problem is not None:
            what = f"the agent draws no figures with {program}: {problem.what}"
            other = (
                "train with an interpreter that only you and root can change, such as: python3 -m venv ~/venv"
            )
            fix = problem.fix.removeprefix("run: ") if problem.fix.startswith("run: ") else other
            yield Finding("interpreter-unsafe", "warning", what, fix)


def check_owners(around: Surroundings) -> Iterator[Finding]:
    """Files in the state folder that belong to root, after a call with sudo, or to somebody else."""
    state = around.places.state
    looked = 0
    for folder, folders, files in os.walk(state):
        for name in (*folders, *files):
            looked += 1
            path = os.path.join(folder, name)
            try:
                owner = os.lstat(path).st_uid
            except OSError:
                continue
            if owner != os.geteuid():
                fix = f"sudo rm -r {path}" if owner else f"sudo chown -R {around.user} {state}"
                yield Finding("state-owner", "fault", f"{path} belongs to uid {owner}", fix)
                return
            if looked > ENTRIES_LOOKED_AT:
                return


def check_state_disk(around: Surroundings) -> Iterator[Finding]:
    """What the state folder lies on, and how much room there is."""
    state = around.places.state
    network = network_file_system(state)
    if network is not None:
        level = "warning" if network == "FUSE" else "fault"
        what = f"the state folder {state} is on {network}, where locks cannot be trusted"
        yield Finding("state-network", level, what, f"set {STATE_VARIABLE} to a folder on a local disk")
    elif file_system_type(state) in {TMPFS, RAMFS}:
        what = f"the state folder {state} is in memory: a reboot loses rows that are not stored yet"
        yield Finding("state-volatile", "warning", what, f"set {STATE_VARIABLE} to a folder on a disk")
    if not state.exists():
        return
    disk = os.statvfs(state)
    least = around.config.agent.min_free_fraction
    if disk.f_bavail < disk.f_blocks * least:
        free = disk.f_bavail * disk.f_frsize >> 20
        what = f"the disk of {state} has {free} MiB free, less than {least:.0%}: rows are lost"
        yield Finding("state-space", "fault", what, "free space there, or lower AGENT.min_free_fraction")
    if disk.f_files and disk.f_favail < FREE_INODES:
        what = f"the disk of {state} has {disk.f_favail} inodes left"
        yield Finding("state-space", "fault", what, "delete small files there")


def check_roots(around: Surroundings) -> Iterator[Finding]:
    """The data roots of the runs that the agent knows."""
    runs = around.status["runs"] if around.status else []
    for root in sorted({run["root"] for run in runs if run["live"]}):
        if not os.path.isdir(root):
            what = f"the data root {root} is not here"
            yield Finding("root-missing", "warning", what, "mount it, then: rla-agent restart")
            continue
        if not os.access(root, os.W_OK):
            what = f"the data root {root} cannot be written"
            yield Finding("root-permissions", "fault", what, f"chmod u+w {root}")
        free = shutil.disk_usage(root).free
        if free < ROOT_FREE_BYTES:
            what = f"the disk of the data root {root} has {free >> 20} MiB free"
            fix = "free space there; rows wait in the spool until then"
            yield Finding("root-space", "warning", what, fix)
        disk = os.statvfs(root)
        if disk.f_files and disk.f_favail < FREE_INODES:
            what = f"the disk of the data root {root} has {disk.f_favail} inodes left"
            yield Finding("root-space", "warning", what, "delete small files there; rows wait until then")


def check_socket(around: Surroundings) -> Iterator[Finding]:
    """A path that fits, and sockets where a living agent has bound them."""
    path = around.places.runtime / "control.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        what = f"the socket path {path} is longer than {MAX_SOCKET_PATH_BYTES} bytes"
        yield Finding("socket-path", "warning", what, f"set {RUNTIME_VARIABLE} to a shorter folder")
    if not around.alive:
        return
    if around.places.sockets == NOWHERE:
        what = "the agent found no folder for its sockets; rows are stored, but status and flush do not work"
        fix = f"set {RUNTIME_VARIABLE} to a short folder of yours, then: rla-agent restart"
        yield Finding("socket-nowhere", "fault", what, fix)
        return
    gone = [path for path in (around.places.data_socket, around.places.control_socket) if not path.exists()]
    if gone:
        what = f"the agent's socket {gone[0]} was deleted under it; status and flush do not work"
        yield Finding("socket-missing", "fault", what, "rla-agent restart")
    elif around.status is None:
        pid = around.agent_pid
        what = f"the agent ({describe_holder(around.places)}) does not answer"
        fix = f"rla-agent logs; then (loses nothing): kill -9 {pid} && rla-agent start --detach"
        if pid is None:
            fix = "it runs outside this container; run there: rla-agent restart"
        yield Finding("agent-silent", "fault", what, fix)


def check_spool(around: Surroundings) -> Iterator[Finding]:
    """What waits in the spool, and whether it can be read."""
    spool = around.places.spool
    try:
        names, used = stream_names(spool, links=True), spool_bytes(spool)
    except OSError:
        return
    limit = around.config.agent.spool_max_bytes
    if used > FULL_PART * limit:
        what = f"the spool holds {used >> 20} MiB of {limit >> 20} MiB; beyond, new rows are lost"
        fix = "see what it waits for: rla-agent status; or raise AGENT.spool_max_bytes"
        yield Finding("spool-full", "warning", what, fix)
    for name in names:
        try:
            check_stream(spool / name)
        except FileNotFoundError:
            continue
        except SpoolError as error:
            yield Finding("spool-foreign", "fault", str(error), f"sudo rm -r {spool / name}")
            continue
        try:
            read_opening(spool / name)
        except FileNotFoundError:
            continue
        except (RlaError, OSError) as error:
            yield Finding("spool-damaged", "fault", str(error), f"mv {spool / name} ~/")
    waiting = [name for name in names if writer_alive(spool / name) is False]
    if waiting and not around.alive:
        what = f"rows of {len(waiting)} ended process(es) wait in {spool}, and no agent runs"
        yield Finding("spool-waiting", "warning", what, "rla-agent start --detach, or once: rla-agent drain")


def check_other_states(around: Surroundings) -> Iterator[Finding]:
    """Spools under other host names of this machine, or of other machines, that nobody takes in."""
    for found in left_behind(around.places):
        yield Finding("spool-elsewhere", "warning", found["what"], found["fix"])


def check_database(around: Surroundings) -> Iterator[Finding]:
    """agent.db is whole."""
    path = around.places.database
    if path.exists():
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0)) as database:
                answer = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            answer = str(error)
        if answer != "ok":
            what = f"{path} is damaged ({answer})"
            fix = "rla-agent restart: it makes a new one; positions come from the spool"
            yield Finding("database", "fault", what, fix)
    aside = path.with_name(path.name + ".broken")
    if aside.exists():
        what = f"{aside} is a damaged database that was set aside; it is no longer used"
        yield Finding("database-aside", "note", what, f"check that disk; then: rm {aside}")


Check = Callable[[Surroundings], Iterable[Finding]]
PLACE_CHECKS: tuple[Check, ...] = (
    check_config,
    check_folders,
    check_interpreters,
    check_owners,
    check_state_disk,
    check_roots,
    check_socket,
    check_spool,
    check_other_states,
    check_database,
)
