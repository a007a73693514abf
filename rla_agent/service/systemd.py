"""The agent and systemd: what the agent tells its service manager, its unit files, what doctor finds of them.

Over the notify socket systemd is told READY, STATUS, WATCHDOG and STOPPING. The watchdog is fed by the
ingest loop itself, after each full turn: a loop that hangs is killed and started again, and nothing is lost
by that. Volume threads are left out on purpose: a frozen disk delays its own streams and is no reason to
end the agent. Without NOTIFY_SOCKET every call does nothing.

The texts in `systemd/` are complete; what depends on the machine is put in here: the interpreter, the
environment that decides where the state lies, and for the system unit, a template with a drop-in for one
user, the folders it may write. Nothing is enabled; the caller gets the commands that do.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_agent.model.status import Finding
from rla_client.contract.agent.systemd_unit import SYSTEM_UNIT_FOLDER, UNIT_NAME, Unit, unit_file
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.file_systems import network_file_system
from rla_client.contract.process.account import user_home

if TYPE_CHECKING:
    import socket

SERVICE_VARIABLE = "RLA_AGENT_SERVICE"  # set by the unit files: user or system
SYSTEMCTL_TIMEOUT_S = 60.0  # TimeoutStartSec of the unit: it may first drain an autostarted agent
TEMPLATE_NAME = "rla-agent@.service"
DROP_IN_NAME = "10-rla-agent.conf"
ROOT_MARK = "# data root: "
EXEC_START = "ExecStart=/usr/bin/env rla-agent start"
HIDDEN_BY_PRIVATE_TMP = ("/tmp/", "/var/tmp/")
STATUS_INTERVAL_S = 5.0
BEATS_PER_TIMEOUT = 4  # the watchdog's time holds so many beats


class Notifier:
    """One process's line to its service manager."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Read and remove the variables, so that no child takes itself for the service."""
        import socket  # noqa: PLC0415 - commands need none

        self._address = environment.pop("NOTIFY_SOCKET", "")
        timeout_us = environment.pop("WATCHDOG_USEC", "")
        owner = environment.pop("WATCHDOG_PID", "")
        self.kind = environment.pop(SERVICE_VARIABLE, "")
        ours = owner in {"", str(os.getpid())}
        self.beat_s = int(timeout_us) / 1e6 / BEATS_PER_TIMEOUT if timeout_us.isdecimal() and ours else 0.0
        self._next_beat = 0.0
        self._next_status = 0.0
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self) -> None:
        """The sockets are bound and the spool was looked at."""
        self._send("READY=1")

    def stopping(self) -> None:
        """No new work is taken."""
        self._send("STOPPING=1\nSTATUS=writing what is left")

    def beat(self, now: float) -> None:
        """The ingest loop made a full turn; `now` is monotonic."""
        if self.beat_s and now >= self._next_beat:
            self._next_beat = now + self.beat_s
            self._send("WATCHDOG=1")

    def status_due(self, now: float) -> bool:
        """Whether it is time for a new line of text."""
        if self._socket is None or now < self._next_status:
            return False
        self._next_status = now + STATUS_INTERVAL_S
        return True

    def status(self, text: str) -> None:
        """One line that `systemctl status` shows."""
        self._send(f"STATUS={text.splitlines()[0] if text else ''}")

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError):  # a full queue or a manager that restarts: the next one arrives
            self._socket.sendto(text.encode(), address)


# -- units --------------------------------------------------------------------------------------


def systemctl(unit: Unit, verb: str) -> subprocess.CompletedProcess[str]:
    """Run systemctl for a unit; a failure is in the result, never raised."""
    command = unit.command(verb)
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=unit.environment(),
            timeout=SYSTEMCTL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def manager_reachable(unit: Unit) -> bool:
    """Whether systemd answers for this user."""
    done = systemctl(unit, "is-active")
    return done.stdout.strip() in {"active", "inactive", "failed", "activating", "deactivating", "reloading"}


def template(name: str) -> str:
    """Text of a unit as it is shipped."""
    package = Path(__file__).resolve().parents[1]
    packaged, checkout = package / "data" / "systemd" / name, package.parent / "systemd" / name
    return (packaged if packaged.exists() else checkout).read_text(encoding="utf-8")


def quote(text: str) -> str:
    """One word of a unit file.

    Raises:
        ArgumentError: it holds a line end.
    """
    if "\n" in text or "\r" in text:
        raise ArgumentError(f"{text!r} cannot stand in a unit file")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _exec_lines(config: str) -> list[str]:
    """ExecStart of this installation, and what it needs to find the package."""
    named = f" --config {quote(config)}" if config else ""
    lines = [f"ExecStart={quote(sys.executable)} -m rla_agent start{named}"]
    parent = Path(__file__).resolve().parents[2]
    if parent.name not in {"site-packages", "dist-packages"}:
        lines.append(f"Environment={quote(f'PYTHONPATH={parent}')}")
    return lines


def config_in(text: str) -> str:
    """The configuration that a unit or drop-in names, empty without one."""
    starts = [line for line in text.splitlines() if line.startswith("ExecStart=") and "--config" in line]
    return shlex.split(starts[-1])[-1].replace("%%", "%") if starts else ""


# -- user unit ----------------------------------------------------------------------------------


def user_unit(config: str = "") -> str:
    """The user unit for this installation."""
    lines = _exec_lines(config)
    state_home = os.environ.get("XDG_STATE_HOME")
    if state_home:
        lines.append(f"Environment={quote(f'XDG_STATE_HOME={state_home}')}")
    return template(UNIT_NAME).replace(EXEC_START, "\n".join(lines))


def install_user_unit(destination: Path | None, config: Path | None = None) -> list[str]:
    """Write the user unit.

    Args:
        destination: folder instead of the user's own.
        config: rla_config.yaml whose AGENT section the service uses.

    Returns:
        What was done and what to do now, line by line.

    Raises:
        OSError: it cannot be written.
    """
    base = os.environ.get("XDG_CONFIG_HOME") or user_home() / ".config"
    path = (destination or Path(base, "systemd", "user")) / UNIT_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, user_unit(config=os.path.abspath(config) if config else "").encode())
    return [
        f"wrote {path}",
        "enable it:                     systemctl --user daemon-reload",
        f"                               systemctl --user enable --now {UNIT_NAME}",
        "keep it running after logout:  loginctl enable-linger",
    ]


# -- system unit --------------------------------------------------------------------------------


def drop_in(state: str, roots: Sequence[str], config: str = "") -> str:
    """What the template needs for one user: where state and data lie, and the configuration."""
    writable = [state, *roots]
    lines = [
        "# Written by: rla-agent install-service --system",
        *(ROOT_MARK + root for root in roots),
        "[Service]",
    ]
    lines += ["ExecStart=", *_exec_lines(config)]
    lines += [f"ReadWritePaths={quote('-' + path)}" for path in writable]
    hidden = [path for path in writable if (path + "/").startswith(HIDDEN_BY_PRIVATE_TMP)]
    lines += [f"BindPaths={quote('-' + path)}" for path in hidden]
    return "\n".join(lines) + "\n"


def install_system_unit(
    data_roots: Sequence[Path], for_user: str, destination: Path | None, config: Path | None = None
) -> list[str]:
    """Write the template and one user's drop-in; roots of an earlier call stay.

    Args:
        data_roots: folders that the service may write.
        for_user: whom it serves; empty: who called sudo, else the caller.
        destination: folder instead of /etc/systemd/system.
        config: rla_config.yaml whose AGENT section the service uses.

    Returns:
        What was done and what to do now, line by line.

    Raises:
        ArgumentError: an unknown user, or a data root that is not a folder.
        OSError: something cannot be written; as a rule: not root.
    """
    user = _user(for_user)
    folder = destination or SYSTEM_UNIT_FOLDER
    unit = f"rla-agent@{user.pw_name}.service"
    path = folder / f"{unit}.d" / DROP_IN_NAME
    roots = list(dict.fromkeys([*known_roots(path), *(_root(root) for root in data_roots)]))
    state = state_folder(user)
    if destination is None:
        _make_state(state, user)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / TEMPLATE_NAME, template(TEMPLATE_NAME).encode())
    text = drop_in(state, roots, config=os.path.abspath(config) if config else "")
    write_atomic(path, text.encode())
    lines = [f"wrote {folder / TEMPLATE_NAME}", f"wrote {path}"]
    lines += [f"it may write {state}", *(f"it may write {root}" for root in roots)]
    if not roots:
        lines.append("no data root was named: rla-agent install-service --system --data-root DIR")
    return [
        *lines,
        "enable it:  systemctl daemon-reload",
        f"            systemctl enable --now {unit}",
        f"after a change:  systemctl daemon-reload && systemctl restart {unit}",
    ]


def known_roots(path: Path) -> list[str]:
    """Data roots that a drop-in names."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [line.removeprefix(ROOT_MARK) for line in lines if line.startswith(ROOT_MARK)]


def state_folder(user: pwd.struct_passwd) -> str:
    """Where the agent of a user without special environment keeps its state."""
    folder = Path(user.pw_dir, ".local", "state", "rla-agent")
    if network_file_system(folder) is not None:
        return f"/var/tmp/rla-agent-{user.pw_uid}"
    return str(folder)


def _user(name: str) -> pwd.struct_passwd:
    try:
        wanted = name or os.environ.get("SUDO_USER", "")
        return pwd.getpwnam(wanted) if wanted else pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise ArgumentError(f"there is no user {name!r}") from error


def _root(root: Path) -> str:
    if not root.is_dir():
        raise ArgumentError(
            f"the data root {root} is not a folder; make it first, as the user who will train"
        )
    return os.path.realpath(root)


def _make_state(state: str, user: pwd.struct_passwd) -> None:
    """ReadWritePaths must exist before the service starts; the folders made here are the user's."""
    missing = [path for path in (Path(state), *Path(state).parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700)
        os.chown(path, user.pw_uid, user.pw_gid)


# -- what the doctor finds ----------------------------------------------------------------------


def unit_findings(unit: Unit | None, user: str, *, lingers: bool, foreign: bool) -> Iterator[Finding]:
    """The installed unit: current, startable, the one that serves.

    Args:
        unit: that is installed.
        user: login name.
        lingers: the user's service manager stays when they log out.
        foreign: an agent runs that no unit started.
    """
    own = unit_file()
    if own is not None:
        text = own.read_text(encoding="utf-8")
        yield from _interpreter(own, text, "rla-agent install-service")
        if text != user_unit(config=config_in(text)):
            what = f"{own} is not what this version would write"
            fix = "rla-agent install-service && systemctl --user daemon-reload"
            yield Finding("unit-stale", "warning", what, fix)
        if user and not lingers:
            what = "the user unit ends when you log out"
            yield Finding("unit-linger", "warning", what, f"loginctl enable-linger {user}")
    elif unit is not None and unit.system:
        yield from _system_unit(unit.name)
    if unit is None:
        return
    scope = "" if unit.system else "--user "
    if foreign:
        what = f"{unit.name} is installed, and an agent runs that it did not start"
        yield Finding("unit-not-serving", "warning", what, "rla-agent restart")
    elif systemctl(unit, "is-failed").stdout.strip() == "failed":
        what = f"{unit.name} has failed"
        reset = f"systemctl {scope}reset-failed {unit.name} && rla-agent restart"
        fix = f"journalctl {scope}-u {unit.name}; then: {reset}"
        yield Finding("unit-failed", "fault", what, fix)
    elif not manager_reachable(unit):
        what = "the service manager of this user cannot be reached from here"
        yield Finding("unit-unreachable", "note", what, f"loginctl enable-linger {user}")


def _system_unit(name: str) -> Iterator[Finding]:
    fix = "as root: rla-agent install-service --system && systemctl daemon-reload"
    path = SYSTEM_UNIT_FOLDER / TEMPLATE_NAME
    if path.exists() and path.read_text(encoding="utf-8") != template(TEMPLATE_NAME):
        yield Finding("unit-stale", "warning", f"{path} is not what this version would write", fix)
    own = SYSTEM_UNIT_FOLDER / f"{name}.d" / DROP_IN_NAME
    if not own.exists():
        yield Finding("unit-stale", "fault", f"{own} is missing: the service may write nothing", fix)
    else:
        yield from _interpreter(own, own.read_text(encoding="utf-8"), fix)


def _interpreter(path: Path, text: str, fix: str) -> Iterator[Finding]:
    starts = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    program = shlex.split(starts[-1])[0] if starts else ""
    if not os.access(program, os.X_OK):
        what = f"{path} starts {program!r}, which is not there any more"
        yield Finding("unit-interpreter", "fault", what, fix)
