"""Command `rla-agent start`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from rla_agent.command.failures import EXIT_STATE, fail, state_folder_failures
from rla_agent.command.group import app
from rla_agent.command.options import ConfigOption, settings_of
from rla_agent.service.lock_holder import describe_holder
from rla_agent.service.notifier import SERVICE_VARIABLE
from rla_agent.service.start_detached import start_detached
from rla_client.contract.agent.agent_environment import OWNER_VARIABLE
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@app.command(epilog=examples("rla-agent start --detach", "rla-agent start --config rla_config.yaml"))
def start(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; return as soon as an agent serves.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Start the agent, in the foreground or in the background."""
    os.environ.pop(OWNER_VARIABLE, None)  # an agent that is asked for by name outlives the job
    places = find_places()
    settings_of(config)
    with state_folder_failures(places):
        places.create()
        places.stopped_marker.unlink(missing_ok=True)
        if detach:
            fresh = start_detached(places, config)
            typer.echo(f"agent {'started' if fresh else 'is already running'}: {describe_holder(places)}")
            return
        if agent_alive(places) and not os.environ.get(SERVICE_VARIABLE):
            fail(f"an agent already serves this folder: {describe_holder(places)}", EXIT_STATE)
    arguments = [sys.executable, "-m", "rla_agent.daemon"]
    if config is not None:
        arguments += ["--config", str(config)]
    sys.stdout.flush()
    os.execv(sys.executable, arguments)  # noqa: S606 - the daemon does without typer and rich
