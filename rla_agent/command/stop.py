"""Command `rla-agent stop`."""

from __future__ import annotations

import typer

from rla_agent.command.failures import EXIT_STATE, fail, state_folder_failures
from rla_agent.command.group import app
from rla_agent.service.stop_agent import stop_agent
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@app.command(epilog=examples("rla-agent stop", "rla-agent stop && rla-agent start --detach"))
def stop() -> None:
    """Stop the agent once it has written everything. Runs start no new agent until `start`."""
    places = find_places()
    with state_folder_failures(places):
        places.create()
        places.stopped_marker.touch(mode=0o600)
        was = stop_agent(places)
    if not was:
        fail(
            f"no agent was running for {places.state}; clients start none until: rla-agent start", EXIT_STATE
        )
    typer.echo("agent stopped; runs start no new one until: rla-agent start")
