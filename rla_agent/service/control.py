"""The agent seen from the command line: its status, start in the background, stop; and its systemd units.

Where a systemd unit is installed for this user, starting and stopping go through systemctl, so that
the unit and an autostarted agent never hold each other off. An agent that was started otherwise is
told by signal, and over its control socket where its process cannot be seen from here (a container).

The texts of the units in `systemd/` are complete; what depends on the machine is put in here: the
interpreter, the environment that decides where the state lies, and for the system unit, a template with a
drop-in for one user, the folders it may write. Nothing is enabled; the caller gets the commands that do.
"""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rla_agent.replicate import settings
from rla_agent.store.lock import HolderProcess, describe_holder, read_holder
from rla_client.config.schema import password_variables
from rla_client.contract.agent_process import (
    SYSTEM_UNIT_FOLDER,
    UNIT_NAME,
    Unit,
    agent_alive,
    ask,
    clean_environment,
    detached_command,
    installed_unit,
)
from rla_client.contract.errors import AgentNotRunningError, ArgumentError, RlaError
from rla_client.contract.files import write_atomic
from rla_client.contract.paths import Places, network_file_system, other_states, user_home
from rla_client.contract.protocol import PROTOCOL_VERSION
from rla_client.contract.segments import process_start, stream_names

ASK_TIMEOUT_S = 5.0
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 25.0
EXIT_TIMEOUT_S = 2.0  # from letting go of the lock to the end of the process
SYSTEMCTL_TIMEOUT_S = 60.0  # TimeoutStartSec of the unit: it may first drain an autostarted agent
POLL_S = 0.02
LOG_TAIL_BYTES = 4000
SERVICE_VARIABLE = "RLA_AGENT_SERVICE"  # set by the unit files: user or system
TEMPLATE_NAME = "rla-agent@.service"
DROP_IN_NAME = "10-rla-agent.conf"
ROOT_MARK = "# data root: "
EXEC_START = "ExecStart=/usr/bin/env rla-agent start"
HIDDEN_BY_PRIVATE_TMP = ("/tmp/", "/var/tmp/")


def ask_status(places: Places, timeout_s: float = ASK_TIMEOUT_S) -> dict[str, Any]:
    """The agent's own account of itself.

    Raises:
        AgentNotRunningError: no agent holds the lock.
        RlaError: one does and does not answer.
    """
    return _ask(places, {}, timeout_s)


def _ask(places: Places, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    if not agent_alive(places):
        raise AgentNotRunningError(
            f"no agent is running for {places.state}; start one: rla-agent start --detach"
        )
    told = read_holder(places).get("protocol", 1)  # an agent that was not restarted after an upgrade
    version = min(told, PROTOCOL_VERSION) if isinstance(told, int) else None
    answer = ask(places.control_socket, question, timeout_s, version=version)
    if answer is not None:
        return answer
    raise RlaError(f"the agent does not answer within {timeout_s:g} s: {describe_holder(places)}")


def left_behind(places: Places) -> list[dict[str, str]]:
    """Spools of this user beside the own one that hold rows and that no agent serves: `what` and `fix`.

    A machine's host name or id was changed, or a home came from another machine.
    """
    found = []
    for state in other_states(places.state):
        other = Places(state, state)
        try:
            names = stream_names(other.spool)
        except OSError:
            continue
        if names and not agent_alive(other):
            what = f"rows of {len(names)} process(es) wait in {other.spool}, of another host name or machine"
            found.append({"what": what, "fix": f"rla-agent drain --spool {shlex.quote(str(state))}"})
    return found


# -- start --------------------------------------------------------------------------------------


def start_detached(places: Places, config: Path | None) -> bool:
    """Start an agent in the background and wait until it answers.

    Returns:
        False when one was running already.

    Raises:
        RlaError: it did not come up; the message says why.
    """
    if agent_alive(places):
        ask_status(places)
        return False
    places.create()
    unit = installed_unit()
    if unit is not None and config is not None:
        raise RlaError(
            f"{unit.name} starts the agent; name its configuration there: rla-agent install-service --config"
        )
    if unit is not None and _start_unit(unit, places):
        return True
    before = places.log.stat().st_size if places.log.exists() else 0
    done = subprocess.run(
        detached_command(config, autostarted=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        env=clean_environment() | password_variables(_configs(places, config)),
        start_new_session=True,
        check=True,
    )
    if _await_serving(places, int(done.stdout)):
        return True
    tail = ""
    with suppress(OSError), places.log.open("rb") as log:
        log.seek(before)
        tail = log.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
    raise RlaError(f"the agent did not come up; its log {places.log} says:\n{tail}")


def _configs(places: Places, config: Path | None) -> list[Path]:
    known = [Path(entry.config) for entry in settings.entries(places.state)]
    return known if config is None else [config, *known]


def _start_unit(unit: Unit, places: Places) -> bool:
    """Start through systemd; False when the user's service manager cannot be reached.

    Raises:
        RlaError: systemd refused, or the unit did not come up.
    """
    done = systemctl(unit, "start")
    if done.returncode == 0 and _await_serving(places):
        return True
    if not unit.system and not manager_reachable(unit):
        return False
    scope = "" if unit.system else "--user "
    raise RlaError(
        f"systemctl {scope}start {unit.name} failed: {done.stderr.strip() or 'the agent does not answer'}; "
        f"see: journalctl {scope}-u {unit.name}"
        + (f"; as root: systemctl start {unit.name}" if unit.system and os.geteuid() != 0 else "")
    )


def _await_serving(places: Places, starting: int | None = None) -> bool:
    """Whether an agent answers in time; not waited for when the process `starting` has ended."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if agent_alive(places) and read_holder(places).get("pid"):
            with suppress(RlaError):
                ask_status(places, min(1.0, max(0.1, deadline - time.monotonic())))
                return True
        elif starting is not None and process_start(starting) is None:
            return agent_alive(places)  # another one may have been quicker
        time.sleep(POLL_S)
    return False


# -- stop ---------------------------------------------------------------------------------------


def stop_agent(places: Places) -> bool:
    """Tell the agent to drain and end, and wait for that.

    Returns:
        False when none was running.

    Raises:
        RlaError: it did not end in time, or cannot be told.
    """
    if not agent_alive(places):
        return False
    holder = read_holder(places)
    unit = installed_unit()
    if holder.get("service") and unit is not None and systemctl(unit, "stop").returncode == 0:
        return _await_end(places, holder)
    process = HolderProcess.find(places)
    if process is None:
        _ask_to_end(places)
        return _await_end(places, holder)
    with closing(process):
        process.terminate()  # a unit sees a clean end and does not start it again
        return _await_end(places, holder, process)


def _ask_to_end(places: Places) -> None:
    """Have an agent end that cannot be signalled from here: its number means another process, or none.

    Raises:
        RlaError: it does not answer, or is of a release that does not know the question.
    """
    if not agent_alive(places):
        return
    with suppress(RlaError):
        if _ask(places, {"stop": True}, ASK_TIMEOUT_S).get("stopping"):
            return
    raise RlaError(
        f"the agent runs outside this container or pid namespace and does not answer here "
        f"({describe_holder(places)}); run there: rla-agent stop"
    )


def _await_end(places: Places, holder: dict[str, Any], process: HolderProcess | None = None) -> bool:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    pid = holder.get("pid")
    while agent_alive(places):
        if read_holder(places).get("pid") != pid:
            return True  # that one ended, somebody started another
        if time.monotonic() > deadline:
            raise RlaError(f"the agent (pid {pid}) did not end within {STOP_TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    if process is not None:
        process.await_end(EXIT_TIMEOUT_S)
    return True


# -- systemd ------------------------------------------------------------------------------------


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


def _exec_lines(interpreter: str, config: str = "") -> list[str]:
    """ExecStart of this installation, and what it needs to find the package."""
    named = f" --config {quote(config)}" if config else ""
    lines = [f"ExecStart={quote(interpreter)} -m rla_agent start{named}"]
    parent = Path(__file__).resolve().parents[2]
    if parent.name not in {"site-packages", "dist-packages"}:
        lines.append(f"Environment={quote(f'PYTHONPATH={parent}')}")
    return lines


# -- user unit ----------------------------------------------------------------------------------


def config_in(text: str) -> str:
    """The configuration that a unit or drop-in names, empty without one."""
    starts = [line for line in text.splitlines() if line.startswith("ExecStart=") and "--config" in line]
    return shlex.split(starts[-1])[-1].replace("%%", "%") if starts else ""


def user_unit(config: str = "") -> str:
    """The user unit for this installation."""
    lines = _exec_lines(sys.executable, config)
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


def drop_in(state: str, roots: Sequence[str], interpreter: str = sys.executable, config: str = "") -> str:
    """What the template needs for one user.

    Args:
        state: folder of the agent's state.
        roots: data roots.
        interpreter: that has the package.
        config: rla_config.yaml whose AGENT section the service uses.
    """
    writable = [state, *roots]
    lines = [
        "# Written by: rla-agent install-service --system",
        *(ROOT_MARK + root for root in roots),
        "[Service]",
    ]
    lines += ["ExecStart=", *_exec_lines(interpreter, config)]
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
