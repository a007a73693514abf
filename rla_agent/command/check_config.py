"""Command `rla-agent check-config`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.failures import failures
from rla_agent.command.group import app
from rla_client.config.schema import load_config
from rla_client.contract.text.command_line import examples


@app.command(
    "check-config",
    epilog=examples("rla-agent check-config", "rla-agent check-config project/rla_config.yaml"),
)
def check_config(
    path: Annotated[Path, typer.Argument(help="The file.")] = Path("rla_config.yaml"),
) -> None:
    """List every fault of an rla_config.yaml, with line and key."""
    with failures():
        load_config(path)
    typer.echo(f"{path}: no faults")
