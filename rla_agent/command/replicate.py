"""Commands `rla-agent replicate …`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.group import app
from rla_agent.command.master_target import target_failures
from rla_agent.command.transfer.options import ProjectOption
from rla_agent.replicate import command_markers, fleet, registry, replicated_scope, status_text, target_config
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.status import replication_status
from rla_client.config.schema import load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.text.command_line import examples

replicate_app = typer.Typer(help="Replication to the master node.", no_args_is_help=True)
app.add_typer(
    replicate_app,
    name="replicate",
    epilog=examples("rla-agent replicate status", "rla-agent replicate now"),
)


@replicate_app.command(
    "status", epilog=examples("rla-agent replicate status", "rla-agent replicate status --json")
)
def status(*, as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False) -> None:
    """Show the backlog by kind, rate, last success, and parked files with reason and fix."""
    found = replication_status(find_places().state)
    typer.echo(json.dumps(found, indent=1) if as_json else status_text.as_text(found))
    if "error" in found:
        raise typer.Exit(1)


@replicate_app.command(
    "now", epilog=examples("rla-agent replicate now", "rla-agent replicate now data/log/cartpole")
)
def now(
    folders: Annotated[list[Path] | None, typer.Argument(help="item folders; default: everything")] = None,
) -> None:
    """Check for changed files now instead of at the next scan."""
    _announce(find_places().state, folders or ())


def _announce(state: Path, folders: Sequence[Path] = ()) -> None:
    """Wake the worker."""
    with closing(Announcer(state)) as announcer:
        announcer.now(str(folder.absolute()) for folder in folders)


@replicate_app.command(
    "pause",
    epilog=examples("rla-agent replicate pause", "rla-agent replicate pause && rla-agent replicate status"),
)
def pause() -> None:
    """Send nothing until `resume`."""
    command_markers.pause(find_places().state)


@replicate_app.command(
    "resume",
    epilog=examples("rla-agent replicate resume", "rla-agent replicate resume && rla-agent replicate status"),
)
def resume() -> None:
    """Resume sending."""
    command_markers.resume(find_places().state)


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
    _announce(state)  # it reads the marker then


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
