"""Is there an agent on this machine, and starting one when there is none.

The agent holds an open-file-description lock on `Places.lock` for life; asking for that lock's
holder disturbs nobody. Starting goes through systemd where a unit is installed for this user, else
through a shell that puts the agent into the background and ends, so that the agent is nobody's
child here: no zombie, no surprise for code that waits for its own children. Where a user unit is
installed and the user's service manager cannot be reached (cron, a batch job), the agent starts
without it; the unit takes over when it is started. A system unit that only root may start is
never replaced: rows then wait in the spool.
"""

from __future__ import annotations

import os
import pwd
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.locks import is_locked
from rla_client.contract.paths import RUNTIME_VARIABLE, STATE_VARIABLE, Places, user_home

OWNER_VARIABLE = "RLA_LAUNCH_OWNER"  # set by `rla-agent run`: an agent that its command starts ends with it
UNIT_NAME = "rla-agent.service"
SYSTEM_UNIT_FOLDER = Path("/etc/systemd/system")
START_TIMEOUT_S = 5.0
RAW_BLOBS = "raw_blobs"  # in agent.lock: this agent makes checkpoints from them
LEAST_FILES = 64  # open ones, below which an agent writes no outputs
_KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    STATE_VARIABLE,
    RUNTIME_VARIABLE,
    OWNER_VARIABLE,
)


def agent_alive(places: Places) -> bool:
    """Whether an agent holds the lock of this state folder now."""
    try:
        descriptor = os.open(places.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return is_locked(descriptor, by_file=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def memory_apart(places: Places) -> bool:
    """Whether the agent's /dev/shm is not ours: one of us is in a container, the spool is mounted into it."""
    theirs = _lock_record(places).get("shm")
    return isinstance(theirs, int) and theirs != shared_memory_device()


def refuses_raw_blobs(places: Places) -> bool:
    """Whether the agent that serves is older than raw blobs: it would take one for a torn `.pt`."""
    record = _lock_record(places)
    return bool(record) and RAW_BLOBS not in record and agent_alive(places)


def _lock_record(places: Places) -> dict[str, Any]:
    """What an agent wrote of itself; empty where none did."""
    import json  # noqa: PLC0415 - not at import of the package

    try:
        found = json.loads(places.lock.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def shared_memory_device() -> int | None:
    """Names this process's /dev/shm among all of this machine, None without one."""
    try:
        return os.stat("/dev/shm").st_dev
    except OSError:
        return None


def tight_limits() -> list[str]:
    """What keeps an agent with this process's hard limits from writing all outputs; soft ones it raises."""
    found = []
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        found.append(f"it may open {files} files (ulimit -n), and needs {LEAST_FILES}")
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if size != resource.RLIM_INFINITY:
        found.append(f"its files end at {size} bytes (ulimit -f); what goes beyond waits in the spool")
    return found


def start_agent(
    places: Places, config_path: Path | None = None, secrets: Mapping[str, str] | None = None
) -> bool:
    """Start an agent for `places` without waiting for it to be ready.

    Args:
        places: of the agent.
        config_path: configuration it starts with.
        secrets: further environment variables it needs, see `config.schema.password_variables`.

    Returns:
        False when the user stopped it on purpose (`rla-agent stop`) or it cannot be started.
    """
    if places.stopped:
        return False
    unit = installed_unit()
    if unit is not None and _runs(unit.command("--no-block", "start"), unit.environment()):
        return True
    if unit is not None and unit.system:
        return False
    environment = clean_environment() | dict(secrets or {})
    return _runs(detached_command(config_path, autostarted=True), environment)


def _runs(command: list[str], environment: dict[str, str]) -> bool:
    import subprocess  # noqa: PLC0415 - not at import of the package

    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            start_new_session=True,
            close_fds=True,
            timeout=START_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit that runs the agent of this user."""

    name: str
    system: bool

    def command(self, *words: str) -> list[str]:
        """The systemctl command for this unit; `words` end with the verb."""
        scope = ["--no-ask-password"] if self.system else ["--user"]
        return ["systemctl", *scope, *words, self.name]

    def environment(self) -> dict[str, str]:
        """What systemctl needs to find the user's service manager, also from cron or su."""
        environment = clean_environment()
        runtime = f"/run/user/{os.getuid()}"
        if not self.system and os.path.isdir(runtime):
            environment.setdefault("XDG_RUNTIME_DIR", runtime)
        return environment


def installed_unit() -> Unit | None:
    """The unit that serves this user, None without one; units serve the default places only."""
    import shutil  # noqa: PLC0415 - not at import of the package

    if STATE_VARIABLE in os.environ or shutil.which("systemctl") is None:
        return None
    if unit_file() is not None:
        return Unit(UNIT_NAME, system=False)
    try:
        name = f"rla-agent@{pwd.getpwuid(os.getuid()).pw_name}.service"
    except KeyError:
        return None
    enabled = SYSTEM_UNIT_FOLDER / "multi-user.target.wants" / name
    return Unit(name, system=True) if enabled.is_symlink() else None


def clean_environment() -> dict[str, str]:
    """The few variables that a service needs; nothing of the training job leaks into it."""
    environment = {key: os.environ[key] for key in _KEPT if key in os.environ}
    package_parent = Path(__file__).resolve().parents[2]
    if package_parent.name not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = str(package_parent)
    return environment


def shares_our_life() -> bool:
    """Whether the agent would end together with this process: a container or a batch job."""
    if any(
        name in os.environ for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_SERVICE_HOST")
    ):
        return True
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def unit_file() -> Path | None:
    """The user's installed systemd unit, None without one."""
    base = os.environ.get("XDG_CONFIG_HOME") or user_home() / ".config"
    path = Path(base, "systemd", "user", UNIT_NAME)
    return path if path.exists() else None


def detached_command(config_path: Path | None, *, autostarted: bool) -> list[str]:
    """Command that puts an agent into the background, prints its process id and ends at once."""
    arguments = [sys.executable, "-m", "rla_agent.daemon", "--background"]
    if autostarted:
        arguments.append("--idle-exit")
    if config_path is not None:
        arguments += ["--config", os.path.abspath(config_path)]
    return ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 & echo $!', "sh", *arguments]
