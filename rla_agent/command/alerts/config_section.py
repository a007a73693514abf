"""Section `AGENT.alerts` of the configuration that a command names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_agent.command.failures import EXIT_CONFIG, fail
from rla_agent.command.options import settings_of

if TYPE_CHECKING:
    from rla_client.config.alerts import Alerts

AlertsOption = Annotated[
    Path, typer.Option("--config", help="the rla_config.yaml with the section AGENT.alerts")
]


def alerts_of(config: Path) -> Alerts:
    """The section of a file; ends with all its faults, or when it has none."""
    found = settings_of(config).alerts
    if found is None or not found.channels:
        fail(f"{config} names no channel in AGENT.alerts", EXIT_CONFIG)
    return found
