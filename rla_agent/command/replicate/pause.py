"""Command `rla-agent replicate pause`."""

from __future__ import annotations

from rla_agent.command.replicate.group import replicate_app
from rla_agent.replicate import command_markers
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@replicate_app.command(
    "pause",
    epilog=examples("rla-agent replicate pause", "rla-agent replicate pause && rla-agent replicate status"),
)
def pause() -> None:
    """Send nothing until `resume`."""
    command_markers.pause(find_places().state)
