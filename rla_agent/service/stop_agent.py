"""Stop of an agent by a command.

Where a systemd unit started it, systemctl stops it, so that the unit does not start it again. Any other is
stopped by a signal, or over its control socket where its process is invisible from here (a container).
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Any

from rla_agent.service.control_client import ASK_TIMEOUT_S, ask_agent
from rla_agent.service.lock_holder import HolderProcess, describe_holder, read_holder
from rla_agent.service.systemctl import systemctl
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places
from rla_client.contract.agent.systemd_unit import installed_unit
from rla_client.contract.errors import RlaError

STOP_TIMEOUT_S = 25.0
EXIT_TIMEOUT_S = 2.0  # from letting go of the lock to the end of the process
POLL_S = 0.02


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
