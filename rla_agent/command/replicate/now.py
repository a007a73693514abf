"""Command `rla-agent replicate now`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.replicate.group import replicate_app
from rla_agent.command.replicate.wake_worker import wake_worker
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@replicate_app.command(
    "now", epilog=examples("rla-agent replicate now", "rla-agent replicate now data/log/cartpole")
)
def now(
    folders: Annotated[list[Path] | None, typer.Argument(help="item folders; default: everything")] = None,
) -> None:
    """Check for changed files now instead of at the next scan."""
    wake_worker(find_places().state, folders or ())
