"""Start or stop of an agent by a command.

Where a systemd unit is installed for this user, starting and stopping use systemctl, so that the unit and an
autostarted agent never block each other. An agent that was started otherwise is stopped by a signal, or over
its control socket where its process is invisible from here (a container).
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rla_agent.replicate import registry
from rla_agent.service.control_client import ASK_TIMEOUT_S, ask_agent, ask_status
from rla_agent.service.lock_holder import HolderProcess, describe_holder, read_holder
from rla_agent.service.systemctl import manager_reachable, systemctl
from rla_client.config.schema import password_variables
from rla_client.contract.agent.agent_environment import clean_environment
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import detached_command
from rla_client.contract.agent.places import Places
from rla_client.contract.agent.systemd_unit import Unit, installed_unit
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.writer_liveness import process_start

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 25.0
EXIT_TIMEOUT_S = 2.0  # from letting go of the lock to the end of the process
POLL_S = 0.02
LOG_TAIL_BYTES = 4000


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
    try:
        with places.log.open("ab") as log:
            before = log.tell()
    except OSError as error:  # the agent could not say so
        raise RlaError(f"the agent cannot write its log {places.log}: {error.strerror}") from error
    configs = [Path(entry.config) for entry in registry.listed(places.state)]
    done = subprocess.run(
        detached_command(config, autostarted=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        env=clean_environment() | password_variables(configs if config is None else [config, *configs]),
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


def _start_unit(unit: Unit, places: Places) -> bool:
    """Start through systemd; False when the user's service manager cannot be reached."""
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


def stop_agent(places: Places) -> bool:
    """Ask the agent to drain and end, and wait for that.

    Returns:
        False when none was running.

    Raises:
        RlaError: it did not end in time, or cannot be reached.
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
    """Ask an agent to end that cannot be signalled from here, since its pid is another process's, or none."""
    if not agent_alive(places):
        return
    with suppress(RlaError):
        if ask_agent(places, {"stop": True}, ASK_TIMEOUT_S).get("stopping"):
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
