"""Talking to a running agent from the command line: status, start in the background, stop.

Where a systemd unit is installed for this user, starting and stopping go through systemctl, so that
the unit and an autostarted agent never hold each other off. An agent that was started otherwise is
told by signal, and over its control socket where its process cannot be seen from here (a container).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_agent.replicate import settings
from rla_agent.store.lock import HolderProcess, describe_holder, read_holder
from rla_client.config.schema import password_variables
from rla_client.contract.agent_process import (
    Unit,
    agent_alive,
    ask,
    clean_environment,
    detached_command,
    installed_unit,
)
from rla_client.contract.errors import AgentNotRunningError, RlaError
from rla_client.contract.paths import Places, other_states
from rla_client.contract.protocol import PROTOCOL_VERSION
from rla_client.contract.segments import stream_names

ASK_TIMEOUT_S = 5.0
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 25.0
EXIT_TIMEOUT_S = 2.0  # from letting go of the lock to the end of the process
SYSTEMCTL_TIMEOUT_S = 60.0  # TimeoutStartSec of the unit: it may first drain an autostarted agent
POLL_S = 0.02
LOG_TAIL_BYTES = 4000


def ask_status(places: Places, timeout_s: float = ASK_TIMEOUT_S) -> dict[str, Any]:
    """The agent's own account of itself.

    Raises:
        AgentNotRunningError: no agent holds the lock.
        RlaError: one does and does not answer.
    """
    return _ask(places, {}, timeout_s)


def _ask(places: Places, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    if not agent_alive(places):
        message = f"no agent is running for {places.state}; start one: rla-agent start --detach"
        raise AgentNotRunningError(message)
    told = read_holder(places).get("protocol", 1)  # an agent that was not restarted after an upgrade
    version = min(told, PROTOCOL_VERSION) if isinstance(told, int) else None
    answer = ask(places.control_socket, question, timeout_s, version=version)
    if answer is not None:
        return answer
    message = f"the agent does not answer within {timeout_s:g} s: {describe_holder(places)}"
    raise RlaError(message)


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
        message = (
            f"{unit.name} starts the agent; name its configuration there: rla-agent install-service --config"
        )
        raise RlaError(message)
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
    message = f"the agent did not come up; its log {places.log} says:\n{tail}"
    raise RlaError(message)


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
    message = (
        f"systemctl {scope}start {unit.name} failed: {done.stderr.strip() or 'the agent does not answer'}; "
        f"see: journalctl {scope}-u {unit.name}"
        + (f"; as root: systemctl start {unit.name}" if unit.system and os.geteuid() != 0 else "")
    )
    raise RlaError(message)


def _await_serving(places: Places, starting: int | None = None) -> bool:
    """Whether an agent answers in time; not waited for when the process `starting` has ended."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if agent_alive(places) and read_holder(places).get("pid"):
            with suppress(RlaError):
                ask_status(places, min(1.0, max(0.1, deadline - time.monotonic())))
                return True
        elif starting is not None and _ended(starting):
            return agent_alive(places)  # another one may have been quicker
        time.sleep(POLL_S)
    return False


def _ended(pid: int) -> bool:
    """Whether a process is gone, or only waits to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return state.rpartition(")")[2].split()[:1] == ["Z"]


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
        return _await_end(places, holder, STOP_TIMEOUT_S)
    process = HolderProcess.find(places)
    try:
        if process is not None:
            process.terminate()  # a unit sees a clean end and does not start it again
        else:
            _ask_to_end(places)
        return _await_end(places, holder, STOP_TIMEOUT_S, process)
    finally:
        if process is not None:
            process.close()


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
    message = (
        f"the agent runs outside this container or pid namespace and does not answer here "
        f"({describe_holder(places)}); run there: rla-agent stop"
    )
    raise RlaError(message)


def _await_end(
    places: Places, holder: dict[str, Any], timeout_s: float, process: HolderProcess | None = None
) -> bool:
    deadline = time.monotonic() + timeout_s
    pid = holder.get("pid")
    while agent_alive(places):
        if read_holder(places).get("pid") != pid:
            return True  # that one ended, somebody started another
        if time.monotonic() > deadline:
            message = f"the agent (pid {pid}) did not end within {timeout_s:g} s"
            raise RlaError(message)
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
