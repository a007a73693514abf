"""Command `rla-agent replicate add`."""

from __future__ import annotations

from pathlib import Path

import typer

from rla_agent.command.master_target import target_failures
from rla_agent.command.replicate.group import replicate_app
from rla_agent.command.transfer.options import ProjectOption
from rla_agent.replicate import registry, replicated_scope
from rla_client.config.schema import load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@replicate_app.command(
    "add",
    epilog=examples("rla-agent replicate add data", "rla-agent replicate add data --config rla_config.yaml"),
)
def add(data_root: Path, config: ProjectOption = Path("rla_config.yaml")) -> None:
    """Replicate an existing database, every item of it; it may be one of the original RLA."""
    with target_failures():
        loaded = load_config(config)
        entry = registry.add(find_places().state, data_root, config)
        if not replicated_scope.wanted(entry, loaded):
            typer.echo(f"{config} names no master: fill in REMOTE_SETTING.ftp_server (or bucket)", err=True)
    typer.echo(f"{entry.data_root} is replicated while the agent runs; see: rla-agent replicate status")
