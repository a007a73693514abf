"""Command `rla-agent restart`."""

from __future__ import annotations

import typer

from rla_agent.command.failures import state_folder_failures
from rla_agent.command.group import app
from rla_agent.command.options import ConfigOption, settings_of
from rla_agent.service.lock_holder import describe_holder
from rla_agent.service.start_detached import start_detached
from rla_agent.service.stop_agent import stop_agent
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@app.command(epilog=examples("rla-agent restart", "rla-agent restart --config rla_config.yaml"))
def restart(config: ConfigOption = None) -> None:
    """Stop the agent if it runs, and start it in the background."""
    places = find_places()
    settings_of(config)
    with state_folder_failures(places):
        places.create()
        stop_agent(places)
        places.stopped_marker.unlink(missing_ok=True)
        start_detached(places, config)
    typer.echo(f"agent restarted: {describe_holder(places)}")
