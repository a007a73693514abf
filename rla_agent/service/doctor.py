"""`rla-agent doctor`: looks at everything that the agent depends on, changes nothing.

Each check yields findings; a finding says what is wrong and how to fix it. Levels: `fault` (does
not work), `warning` (will hurt one day), `note` (good to know; the exit code stays 0). Identifiers
of findings are stable; docs/how-to/doctor.md lists them. The checks here are those of the running agent, its
limits, clock, versions, unit, environment and alerts.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from rla_agent.model.status import WITHOUT_LIMITS
from rla_agent.service.control import (
    DROP_IN_NAME,
    TEMPLATE_NAME,
    config_in,
    manager_reachable,
    systemctl,
    template,
    user_unit,
)
from rla_agent.service.doctor_places import LEVELS, PLACE_CHECKS, Check, Finding, Surroundings
from rla_client.config.alerts import Channel
from rla_client.config.schema import BUCKET_VARIABLES, BUCKETS
from rla_client.contract import __version__
from rla_client.contract.agent_process import SYSTEM_UNIT_FOLDER, tight_limits, unit_file
from rla_client.contract.paths import file_problem
from rla_client.contract.textformat import indented

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


def examine(surroundings: Surroundings) -> list[Finding]:
    """All findings, the worst first."""
    findings: list[Finding] = []
    for check in (*PLACE_CHECKS, *SERVICE_CHECKS):
        findings += check(surroundings)
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
    watches = _number(around.system / "proc/sys/fs/inotify/max_user_watches")
    if watches is not None and watches < LEAST_WATCHES:
        what = f"{watches} inotify watches: new files of users reach the master up to 60 s late"
        yield Finding("limit-watches", "note", what, "sysctl fs.inotify.max_user_watches=65536")
    memory = around.system / "dev/shm"
    if memory.is_dir() and (total := shutil.disk_usage(memory).total) < LEAST_SHM_BYTES:
        what = (
            f"/dev/shm holds {total >> 20} MiB: checkpoints stop the training for as long as the disk takes"
        )
        yield Finding("limit-shm", "warning", what, "give the container more: docker run --shm-size=8g")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


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


# -- unit ---------------------------------------------------------------------------------------


def check_unit(around: Surroundings) -> Iterator[Finding]:
    """The installed unit: current, startable, the one that serves."""
    own = unit_file()
    if own is not None:
        text = own.read_text(encoding="utf-8")
        yield from _interpreter(own, text, "rla-agent install-service")
        if text != user_unit(config=config_in(text)):
            what = f"{own} is not what this version would write"
            fix = "rla-agent install-service && systemctl --user daemon-reload"
            yield Finding("unit-stale", "warning", what, fix)
        if around.user and not (around.system / "var/lib/systemd/linger" / around.user).exists():
            what = "the user unit ends when you log out"
            yield Finding("unit-linger", "warning", what, f"loginctl enable-linger {around.user}")
    elif around.unit is not None and around.unit.system:
        yield from _system_unit(around.unit.name)
    if around.unit is None:
        return
    scope = "" if around.unit.system else "--user "
    if around.alive and not around.holder.get("service"):
        what = f"{around.unit.name} is installed, and an agent runs that it did not start"
        yield Finding("unit-not-serving", "warning", what, "rla-agent restart")
    elif systemctl(around.unit, "is-failed").stdout.strip() == "failed":
        what = f"{around.unit.name} has failed"
        reset = f"systemctl {scope}reset-failed {around.unit.name} && rla-agent restart"
        fix = f"journalctl {scope}-u {around.unit.name}; then: {reset}"
        yield Finding("unit-failed", "fault", what, fix)
    elif not manager_reachable(around.unit):
        what = "the service manager of this user cannot be reached from here"
        yield Finding("unit-unreachable", "note", what, f"loginctl enable-linger {around.user}")


def _system_unit(name: str) -> Iterator[Finding]:
    fix = "as root: rla-agent install-service --system && systemctl daemon-reload"
    path = SYSTEM_UNIT_FOLDER / TEMPLATE_NAME
    if path.exists() and path.read_text(encoding="utf-8") != template(TEMPLATE_NAME):
        yield Finding("unit-stale", "warning", f"{path} is not what this version would write", fix)
    drop_in = SYSTEM_UNIT_FOLDER / f"{name}.d" / DROP_IN_NAME
    if not drop_in.exists():
        yield Finding("unit-stale", "fault", f"{drop_in} is missing: the service may write nothing", fix)
    else:
        yield from _interpreter(drop_in, drop_in.read_text(encoding="utf-8"), fix)


def _interpreter(path: Path, text: str, fix: str) -> Iterator[Finding]:
    starts = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    program = shlex.split(starts[-1])[0] if starts else ""
    if not os.access(program, os.X_OK):
        what = f"{path} starts {program!r}, which is not there any more"
        yield Finding("unit-interpreter", "fault", what, fix)


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
    lingers = (around.system / "var/lib/systemd/linger" / around.user).exists()
    if not booted or os.getuid() < FIRST_LOGIN_UID or lingers:
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


SERVICE_CHECKS: tuple[Check, ...] = (
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
