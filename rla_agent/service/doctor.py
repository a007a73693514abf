"""`rla-agent doctor`: examines everything that the agent depends on, changes nothing.

Each check yields findings; a finding says what is wrong and how to fix it. Levels: `fault` (does
not work), `warning` (will hurt one day), `note` (good to know; the exit code stays 0). Identifiers
of findings are stable; docs/how-to/doctor.md lists them.
"""

from __future__ import annotations

import importlib.metadata
import os
import pwd
import re
import resource
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla_agent.model.status import WITHOUT_AGENT, WITHOUT_LIMITS, Finding
from rla_agent.pipeline.stream import read_opening
from rla_agent.replicate.report import attention, replication_status
from rla_agent.service.control import ask_status, describe_holder, left_behind, read_holder, visible_holder
from rla_agent.service.systemd import unit_findings
from rla_client.config.alerts import Channel
from rla_client.config.project import CONFIG_NAME
from rla_client.config.schema import BUCKET_VARIABLES, BUCKETS, Config, load_config
from rla_client.contract import __version__
from rla_client.contract.agent.agent_environment import tight_limits
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import (
    MAX_SOCKET_PATH_BYTES,
    NOWHERE,
    RUNTIME_VARIABLE,
    STATE_VARIABLE,
    Places,
    find_places,
    why_elsewhere,
)
from rla_client.contract.agent.systemd_unit import Unit, installed_unit
from rla_client.contract.errors import ConfigError, PlaceError, RlaError, SpoolError
from rla_client.contract.filesystem.file_systems import file_system_type, network_file_system
from rla_client.contract.filesystem.plain_files import sqlite_address
from rla_client.contract.filesystem.trusted_paths import file_problem, folder_problem, program_problem
from rla_client.contract.spool.segments import check_stream, spool_bytes, stream_names
from rla_client.contract.spool.writer_liveness import writer_alive
from rla_client.contract.text.terminal_text import indented

LEVELS = ("fault", "warning", "note")
ASK_TIMEOUT_S = 3.0
TMPFS = 0x01021994
RAMFS = 0x858458F6
FULL_PART = 0.8  # of spool_max_bytes
ROOT_FREE_BYTES = 100 << 20
FREE_INODES = 1000
ENTRIES_LOOKED_AT = 10_000
LEAST_FILES = 1024  # about 300 clients and their outputs
LEAST_WATCHES = 8192
LEAST_SHM_BYTES = 256 << 20  # docker gives 64 MB; two slots for a small network
CLOCK_SLACK_S = 60.0
FIRST_YEAR_S = 1_704_067_200  # 2024-01-01: an earlier clock was never set
FIRST_LOGIN_UID = 1000  # logind spares system users
LEAST_VERSIONS = {
    "torch": ((2, 10), "torch.load(weights_only=True) runs code from the file before 2.10"),
    "msgpack": ((1, 2, 1), "earlier ones may crash after an error"),
}


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
    def here(cls, config_path: Path | None) -> Surroundings:
        """This process's surroundings; the configuration of this folder unless one is named."""
        places = find_places()
        if config_path is None and Path(CONFIG_NAME).exists():
            config_path = Path(CONFIG_NAME)
        config, faults = Config(), list[str]()
        if config_path is not None:
            try:
                config = load_config(config_path)
            except ConfigError as error:
                faults = error.faults
        alive, status = agent_alive(places), None
        with suppress(RlaError):
            status = ask_status(places, ASK_TIMEOUT_S) if alive else None
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        return cls(
            places=places,
            config_path=config_path,
            config=config,
            config_faults=tuple(faults),
            environment=dict(os.environ),
            user=user,
            now=time.time(),
            alive=alive,
            holder=read_holder(places) if alive else {},
            status=status,
            replication=tuple(attention(replication_status(places.state))),
            unit=installed_unit(),
        )

    @property
    def agent_pid(self) -> int | None:
        """Process id of the agent that holds the lock; None without one that can be seen from here."""
        return visible_holder(self.places) if self.alive else None

    @property
    def lingers(self) -> bool:
        """Whether the user's service manager, and what belongs to the user, stays when they log out."""
        return (self.system / "var/lib/systemd/linger" / self.user).exists()

    def agent_environment(self) -> dict[str, str] | None:
        """What the agent was started with; None when there is none or it cannot be read."""
        try:
            raw = Path(f"/proc/{self.agent_pid}/environ").read_bytes()
        except OSError:
            return None
        pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def examine(surroundings: Surroundings) -> list[Finding]:
    """All findings, the worst first."""
    findings = [finding for check in CHECKS for finding in check(surroundings)]
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def report(findings: list[Finding], width: int) -> str:
    """The findings for people, in lines of `width` columns."""
    if not findings:
        return "everything is as it should be"
    return "\n".join(
        indented(text, width, first, "    ")
        for finding in findings
        for first, text in ((f"{finding.level}: ", finding.what), ("    ", finding.fix))
    )


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
        yield Finding("spool-waiting", "warning", what, WITHOUT_AGENT)


def check_other_states(around: Surroundings) -> Iterator[Finding]:
    """Spools under other host names of this machine, or of other machines, that nobody takes in."""
    for found in left_behind(around.places):
        yield Finding("spool-elsewhere", "warning", found["what"], found["fix"])


def check_database(around: Surroundings) -> Iterator[Finding]:
    """agent.db is whole."""
    path = around.places.database
    if path.exists():
        try:
            with closing(sqlite3.connect(sqlite_address(path), uri=True, timeout=1.0)) as database:
                answer = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            answer = str(error)
        if answer != "ok":
            what = f"{path} is damaged ({answer})"
            fix = "rla-agent restart: it makes a new one; positions come from the spool"
            yield Finding("database", "fault", what, fix)
    for aside in sorted(path.parent.glob(f"{path.name}.broken*")):
        what = f"{aside} is a damaged database that was set aside; it is no longer used"
        yield Finding("database-aside", "note", what, f"check that disk; then: rm {aside}")


# -- the agent, limits and clock ----------------------------------------------------------------


def check_stopped(around: Surroundings) -> Iterator[Finding]:
    """The marker that `rla-agent stop` left."""
    if around.places.stopped_marker.exists() and not around.alive:
        what = "the agent was stopped on purpose: training processes start none, rows wait in the spool"
        yield Finding("stopped", "warning", what, "rla-agent start --detach")


def check_problems(around: Surroundings) -> Iterator[Finding]:
    """What the running agent says of itself."""
    for problem in around.status["problems"] if around.status else ():
        yield Finding("agent-problem", "warning", problem["what"], problem["fix"])
    for problem in around.replication:
        yield Finding("replication-problem", "warning", problem["what"], problem["fix"])


def check_versions(around: Surroundings) -> Iterator[Finding]:
    """The running agent and this command, and libraries with known faults."""
    running = around.status["agent"]["version"] if around.status else __version__
    if running != __version__:
        what = f"the running agent is version {running}, installed is {__version__}"
        yield Finding("version-agent", "warning", what, "rla-agent restart")
    for name, (least, why) in LEAST_VERSIONS.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if tuple(int(part) for part in re.findall(r"\d+", found)[:3]) < least:
            wanted = ".".join(map(str, least))
            what = f"{name} {found}: {why}"
            yield Finding(f"version-{name}", "warning", what, f"pip install '{name}>={wanted}'")


def check_limits(around: Surroundings) -> Iterator[Finding]:
    """Descriptors, watches and shared memory."""
    pid = around.agent_pid or os.getpid()
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except OSError:
        hard = resource.RLIM_INFINITY
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        what = f"the agent may open {hard} files, three a client"
        fix = f"ulimit -Hn {LEAST_FILES} or more before it starts; LimitNOFILE= in a unit"
        yield Finding("limit-files", "warning", what, fix)
    for limit in tight_limits() if around.status is None else ():  # a running agent tells it itself
        what = f"an agent that is started from here: {limit}"
        yield Finding("limit-agent", "warning", what, WITHOUT_LIMITS)
    with suppress(OSError, ValueError):
        watches = int((around.system / "proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii"))
        if watches < LEAST_WATCHES:
            what = f"{watches} inotify watches: new files of users reach the master up to 60 s late"
            yield Finding("limit-watches", "note", what, "sysctl fs.inotify.max_user_watches=65536")
    memory = around.system / "dev/shm"
    if memory.is_dir() and (total := shutil.disk_usage(memory).total) < LEAST_SHM_BYTES:
        what = (
            f"/dev/shm holds {total >> 20} MiB: checkpoints stop the training for as long as the disk takes"
        )
        yield Finding("limit-shm", "warning", what, "give the container more: docker run --shm-size=8g")


def check_clock(around: Surroundings) -> Iterator[Finding]:
    """A clock that was never set, or that went back."""
    if around.now < FIRST_YEAR_S:
        yield Finding("clock", "fault", "the clock was never set", "timedatectl set-ntp true")
        return
    ahead = [
        (path.stat().st_mtime, path)
        for path in (around.places.log, around.places.database, around.places.lock)
        if path.exists()
    ]
    newest, path = max(ahead, default=(0.0, around.places.state))
    if newest > around.now + CLOCK_SLACK_S:
        what = f"{path} was written {newest - around.now:.0f} s in the future: the clock went back"
        fix = f"timedatectl set-ntp true; when the clock is right: touch {path}"
        yield Finding("clock", "warning", what, fix)


def check_unit(around: Surroundings) -> Iterator[Finding]:
    """The installed unit: current, startable, the one that serves."""
    foreign = around.alive and not around.holder.get("service")
    return unit_findings(around.unit, around.user, lingers=around.lingers, foreign=foreign)


# -- what the agent sees ------------------------------------------------------------------------


def check_environment(around: Surroundings) -> Iterator[Finding]:
    """What replication needs from the agent's environment, which is not this shell's."""
    remote = around.config.remote_setting
    if around.config.send_log_file and remote.credentials_file:
        base = around.config_path.absolute().parent if around.config_path else Path.cwd()
        if problem := _secret_problem(base / os.path.expanduser(remote.credentials_file), "password"):
            yield Finding("credentials", "fault", *problem)
    seen = around.agent_environment()
    if seen is None or not around.config.send_log_file:
        return
    if remote.password_env and remote.password_env not in seen:
        what = (
            f"the agent's environment has no {remote.password_env}, which REMOTE_SETTING.password_env names"
        )
        yield Finding("service-password", "fault", what, _set_for(around, remote.password_env))
    if remote.file_transfer_protocol in BUCKETS and not remote.credentials_file:
        for name in sorted(set(BUCKET_VARIABLES) & around.environment.keys() - seen.keys()):
            what = (
                f"this shell has {name}, with which the bucket may be opened; the agent's environment has not"
            )
            yield Finding("service-bucket", "warning", what, _set_for(around, name))
    own_key = remote.identity_file or remote.password or remote.password_env or remote.credentials_file
    if remote.file_transfer_protocol != "sftp" or own_key:
        return
    agent_socket = seen.get("SSH_AUTH_SOCK")
    if agent_socket and not os.path.exists(agent_socket):
        what = f"the agent knows an ssh-agent at {agent_socket}, which is gone (you logged out)"
        fix = "set REMOTE_SETTING.identity_file, or: rla-agent restart"
        yield Finding("service-ssh-agent", "warning", what, fix)
    elif not agent_socket and around.environment.get("SSH_AUTH_SOCK"):
        what = "this shell has an ssh-agent, the agent's environment has none"
        fix = "set REMOTE_SETTING.identity_file to a key without passphrase"
        yield Finding("service-ssh-agent", "warning", what, fix)


def _secret_problem(path: Path, secret: str) -> tuple[str, str] | None:
    """What is wrong with a file that holds a secret, and what to do; None where nothing is."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return f"{path}: {error.strerror}", f"write the {secret} into {path}, mode 600"
    if mode & 0o077:
        return f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}"
    return None


def _set_for(around: Surroundings, variable: str) -> str:
    if around.unit is None:
        return f"export {variable} before: rla-agent restart"
    scope = "" if around.unit.system else "--user "
    return f"systemctl {scope}edit {around.unit.name}: [Service] EnvironmentFile=…; or use credentials_file"


def check_shared_memory_at_logout(around: Surroundings) -> Iterator[Finding]:
    """Logind removes the shared memory of users who log out, and with it checkpoints that wait."""
    booted = (around.system / "run/systemd/system").is_dir()
    if not booted or os.getuid() < FIRST_LOGIN_UID or around.lingers:
        return
    settings = [around.system / "etc/systemd/logind.conf"]
    settings += sorted((around.system / "etc/systemd/logind.conf.d").glob("*.conf"))
    removes = "yes"
    for path in settings:
        if path.exists():
            found = re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            removes = found[-1] if found else removes
    if removes.lower() in {"yes", "true", "1", "on"}:
        what = "your shared memory is removed when you log out (RemoveIPC=yes), and checkpoints in it"
        yield Finding("remove-ipc", "warning", what, f"loginctl enable-linger {around.user}")


def check_alerts(around: Surroundings) -> Iterator[Finding]:
    """Secrets that are missing or open to others, programs that are not there."""
    alerts, path = around.config.agent.alerts, around.config_path
    if alerts is None or path is None:
        return
    folder = path.absolute().parent
    used = {name for rule in alerts.rules for name in rule.send}
    for channel in alerts.channels:
        if channel.name not in used:
            what = f"no rule sends by the alert channel {channel.name}"
            fix = f"name it in a rule's `send`, or take it out of {path}"
            yield Finding("alerts-unused", "note", what, fix)
        yield from _secrets(around, channel, folder)
        if channel.kind == "command":
            yield from _command(channel, path)


def _secrets(around: Surroundings, channel: Channel, folder: Path) -> Iterator[Finding]:
    for name in filter(None, (channel.credentials_file, channel.url_file)):
        if problem := _secret_problem(folder / os.path.expanduser(name), "secret"):
            what, fix = problem
            yield Finding("alerts-secret", "fault", f"alert channel {channel.name}: {what}", fix)
    seen = around.agent_environment()
    for variable in filter(None, (channel.password_env, channel.url_env)):
        if seen is not None and variable not in seen:
            what = f"alert channel {channel.name}: the agent's environment has no {variable}"
            fix = "name a file instead (credentials_file, url_file), or set it for the agent"
            yield Finding("alerts-secret", "fault", what, fix)


def _command(channel: Channel, config: Path) -> Iterator[Finding]:
    program = channel.command[0]
    found = shutil.which(config.absolute().parent / program if "/" in program else program)
    if found is None:
        what = f"alert channel {channel.name}: there is no program {program}"
        fix = f"correct AGENT.alerts.channels.{channel.name}.command"
        yield Finding("alerts-command", "fault", what, fix)
    for path in (config.absolute(), found):
        problem = None if path is None else file_problem(path)
        if problem is not None:
            what = f"the agent does not run the command of alert channel {channel.name}: {problem.what}"
            yield Finding("alerts-command", "fault", what, problem.fix.removeprefix("run: "))


CHECKS: tuple[Callable[[Surroundings], Iterable[Finding]], ...] = (
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
    check_stopped,
    check_problems,
    check_versions,
    check_limits,
    check_clock,
    check_unit,
    check_environment,
    check_shared_memory_at_logout,
    check_alerts,
)
