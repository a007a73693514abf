"""Is there an agent on this machine, and starting one when there is none.

The agent holds an open-file-description lock on `Places.lock` for life; asking for that lock's
holder disturbs nobody. Starting goes through systemd where a user unit is installed, else
through a shell that puts the agent into the background and ends, so that the agent is nobody's
child here: no zombie, no surprise for code that waits for its own children.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

from rla_client.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places

UNIT_NAME = "rla-agent.service"
START_TIMEOUT_S = 5.0
_FLOCK = struct.Struct("hhqqi")
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
)


def agent_alive(places: Places) -> bool:
    """Whether an agent holds the lock of this state folder now."""
    try:
        descriptor = os.open(places.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, query)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def start_agent(places: Places, config_path: Path | None = None) -> bool:
    """Start an agent for `places` without waiting for it to be ready.

    Returns:
        False when the user stopped it on purpose (`rla-agent stop`) or it cannot be started.
    """
    if places.stopped_marker.exists():
        return False
    try:
        command = _systemd_command(places) or detached_command(config_path, autostarted=True)
        subprocess.run(  # noqa: S603 - our own interpreter or systemctl
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=clean_environment(),
            start_new_session=True,
            close_fds=True,
            timeout=START_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def clean_environment() -> dict[str, str]:
    """The few variables that a service needs; nothing of the training job leaks into it."""
    environment = {key: os.environ[key] for key in _KEPT if key in os.environ}
    package_parent = Path(__file__).resolve().parent.parent
    if package_parent.name not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = str(package_parent)
    return environment


def shares_our_life() -> bool:
    """Whether the agent would end together with this process: a container or a batch job."""
    if any(name in os.environ for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_SERVICE_HOST")):
        return True
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def unit_file() -> Path | None:
    """The user's installed systemd unit, None without one."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    path = Path(base, "systemd", "user", UNIT_NAME)
    return path if path.exists() else None


def _systemd_command(places: Places) -> list[str] | None:
    if STATE_VARIABLE in os.environ or unit_file() is None or shutil.which("systemctl") is None:
        return None
    del places  # the unit serves the default places
    return ["systemctl", "--user", "--no-block", "start", UNIT_NAME]


def detached_command(config_path: Path | None, *, autostarted: bool) -> list[str]:
    """Command that puts an agent into the background and ends at once."""
    arguments = [sys.executable, "-m", "rla_agent.daemon", "--background"]
    if autostarted:
        arguments.append("--idle-exit")
    if config_path is not None:
        arguments += ["--config", os.path.abspath(config_path)]
    return ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *arguments]
