"""Command `rla-agent trust`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.group import app
from rla_agent.command.master_target import target_failures
from rla_agent.command.replicate.retry import try_again
from rla_agent.replicate import registry
from rla_agent.replicate.backend.ssh_login import resolve_login
from rla_agent.replicate.backend.trust import trust
from rla_client.config.schema import RemoteSetting, load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@app.command(
    "trust",
    epilog=examples("rla-agent trust master.example.org", "rla-agent trust 10.0.0.7 --port 2222 --user rla"),
)
def trust_command(
    host: str,
    *,
    port: Annotated[int | None, typer.Option(help="sshd's port")] = None,
    user: Annotated[str, typer.Option(help="user on the master")] = "",
    root: Annotated[str, typer.Option(help="remote root to try")] = "",
    config: Annotated[
        Path | None, typer.Option(help="rla_config.yaml from which options not given are taken")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="accept the key without asking (only where the link is safe)")
    ] = False,
) -> None:
    """Show and pin the master's host key, set up a login key, and test the remote root."""
    with target_failures():
        remote = load_config(config).remote_setting if config else RemoteSetting()
        changes = {
            "ftp_server": host,
            **({"port": port} if port else {}),
            **({"username": user} if user else {}),
        }
        remote = dataclasses.replace(remote, **changes)  # type: ignore[arg-type]
        private = registry.folder(find_places().state)
        accept = (lambda _: True) if yes else typer.confirm
        login = resolve_login(remote, private, config)
        found = trust(login, root or remote.remote_data_root, private, accept)
    typer.echo("\n".join(found.say))
    if found.known:  # also with the key alone: status must not continue naming that
        try_again(find_places().state)
    if not found.ready:
        raise typer.Exit(1)
