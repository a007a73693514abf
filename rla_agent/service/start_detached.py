"""Start of an agent in the background by a command.

Where a systemd unit is installed for this user, systemctl starts it, so that the unit and an autostarted
agent never block each other.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from rla_agent.replicate import registry
from rla_agent.service.control_client import ask_status
from rla_agent.service.lock_holder import read_holder
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
