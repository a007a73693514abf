"""Command `rla-agent replicate resume`."""

from __future__ import annotations

from rla_agent.command.replicate.group import replicate_app
from rla_agent.replicate import command_markers
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@replicate_app.command(
    "resume",
    epilog=examples("rla-agent replicate resume", "rla-agent replicate resume && rla-agent replicate status"),
)
def resume() -> None:
    """Resume sending."""
    command_markers.resume(find_places().state)
