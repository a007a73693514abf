"""Command `rla-agent replicate fleet`."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.master_target import target_failures
from rla_agent.command.replicate.group import replicate_app
from rla_agent.replicate import fleet, registry, status_text, target_config
from rla_client.config.schema import load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.text.command_line import examples


@replicate_app.command(
    "fleet",
    epilog=examples("rla-agent replicate fleet", "rla-agent replicate fleet --config rla_config.yaml"),
)
def fleet_command(
    config: Annotated[
        Path | None, typer.Option("--config", help="rla_config.yaml that names the master")
    ] = None,
) -> None:
    """Show all machines that replicate to this master, with their live runs and backlog."""
    show_fleet(find_places().state, config)


def show_fleet(state: Path, config: Path | None, *, as_json: bool = False) -> None:
    """Print the machines' status on a master, or on all masters that this machine sends to.

    Raises:
        typer.Exit: 2, a master cannot be reached, none is known, or a config has faults.
    """
    with target_failures():
        configs = [Path(entry.config) for entry in registry.entries(state)] if config is None else [config]
        masters = [target_config.target(load_config(path), registry.folder(state)) for path in configs]
        if not masters:
            raise RlaError("no database of this machine goes to a master; name one: --config rla_config.yaml")
        found = {}
        for master in {each.name: each for each in masters}.values():
            with closing(master.open()) as session:
                found[master.name] = fleet.machines(session)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for target, machines in found.items():
        typer.echo(f"{status_text.shown_target(target)}\n{fleet.machines_text(machines)}")
