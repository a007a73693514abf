"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.failures import fail_as
from rla_client.config.schema import AgentConfig, load_config
from rla_client.contract.errors import ConfigError

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="rla_config.yaml whose AGENT section is used.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; its fields are stable.")]


def settings_of(config: Path | None) -> AgentConfig:
    """The AGENT section of a file, the defaults without one; ends with all its faults otherwise."""
    try:
        return load_config(config).agent if config is not None else AgentConfig()
    except ConfigError as error:
        fail_as(error)
