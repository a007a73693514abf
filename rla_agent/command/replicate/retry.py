"""Command `rla-agent replicate retry`."""

from __future__ import annotations

from pathlib import Path

from rla_agent.command.replicate.group import replicate_app
from rla_agent.command.replicate.wake_worker import wake_worker
from rla_agent.replicate import command_markers
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@replicate_app.command(
    "retry",
    epilog=examples("rla-agent replicate retry", "rla-agent replicate retry && rla-agent replicate status"),
)
def retry() -> None:
    """Retry parked files, and masters that were given up."""
    try_again(find_places().state)


def try_again(state: Path) -> None:
    """Have the worker retry parked or blocked files."""
    command_markers.ask_retry(state)
    wake_worker(state)  # it reads the marker then
