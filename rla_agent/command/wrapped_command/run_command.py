"""Run of a command with an agent of its own (`rla-agent run -- CMD`).

It starts an agent if none serves, runs CMD in this process group, passes signals on, passes its output on and
stores it (`console`), writes its exit code or signal into run.json of the runs that it opened, waits until
their data are durable, and exits with CMD's status (128 + n after signal n). A signal that tells CMD to stop
is recorded: runs that were open then, and ended, are `interrupted`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rla_agent.command.wrapped_command.agent_keeper import AgentKeeper
from rla_agent.command.wrapped_command.child import Child
from rla_agent.command.wrapped_command.command_launch import CommandLaunch
from rla_agent.command.wrapped_command.log_writer import LogWriter
from rla_agent.command.wrapped_command.run_endings import await_end, place_console
from rla_agent.model.process_ending import Ending
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.capture.environment import CaptureNotes, CaptureWish, captured_environment
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.opening import CONSOLE_VARIABLE, LAUNCH_VARIABLE

NOT_FOUND, NOT_EXECUTABLE = 127, 126


def run_command(  # noqa: PLR0913 - those of the command line
    command: Sequence[str],
    places: Places,
    settings: AgentConfig,
    *,
    drain_s: float,
    console: bool = True,
    config: Path | None = None,
    capture: CaptureWish | None = None,
) -> int:
    """Run a command with an agent; returns its exit status.

    Args:
        command: program and arguments.
        places: of the agent.
        settings: the AGENT section.
        drain_s: seconds to wait for its runs' data after it ended.
        console: store its output.
        config: handed to an agent that is started.
        capture: record it even without rla_client.
    """
    program = shutil.which(command[0])
    if program is None:
        there = "/" in command[0] and os.path.exists(command[0])
        sys.stderr.write(f"rla-agent run: {command[0]}: {'cannot be executed' if there else 'not found'}\n")
        return NOT_EXECUTABLE if there else NOT_FOUND
    with suppress(RlaError):  # told of below
        places.create()
    kept_bytes = settings.console_max_bytes if console else 0
    keeper = LogWriter(places.state, kept_bytes)
    keeping = AgentKeeper(places, config)
    launch = secrets.token_hex(8)
    kept = {CONSOLE_VARIABLE: "1"} if kept_bytes else {}
    environment = {**os.environ, LAUNCH_VARIABLE: launch, **kept}
    notes = None
    try:
        if capture is not None:
            notes = CaptureNotes()
            environment = captured_environment(environment, capture, notes.path)
        child = Child(program, command, environment, keeper)
    except OSError as error:
        sys.stderr.write(f"rla-agent run: {command[0]}: {error.strerror or error}\n")
        ending = Ending(NOT_EXECUTABLE, None)
    else:

        def look() -> None:
            keeping.look()
            place_console(places, launch, keeper)

        ending = child.wait(look)
        ended = CommandLaunch(launch, child.pid, ending, child.told)
        await_end(places, keeping, ended, keeper, time.monotonic() + drain_s)
    keeping.stop()
    if notes is not None:
        found, why = notes.outcome()
        if why or sys.stderr.isatty():  # into a file or a pipe goes what the command itself says
            sys.stderr.write(f"rla-agent run: {why or found}\n")
    return ending.status
