"""Command `rla-agent replicate status`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rla_agent.command.replicate.group import replicate_app
from rla_agent.replicate import status_text
from rla_agent.replicate.status import replication_status
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@replicate_app.command(
    "status", epilog=examples("rla-agent replicate status", "rla-agent replicate status --json")
)
def status(*, as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False) -> None:
    """Show the backlog by kind, rate, last success, and parked files with reason and fix."""
    found = replication_status(find_places().state)
    typer.echo(json.dumps(found, indent=1) if as_json else status_text.as_text(found))
    if "error" in found:
        raise typer.Exit(1)
