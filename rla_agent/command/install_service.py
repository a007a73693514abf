"""Command `rla-agent install-service`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.failures import EXIT_USAGE, fail, failures
from rla_agent.command.group import app
from rla_agent.command.options import ConfigOption, settings_of
from rla_agent.service.unit_files import install_system_unit, install_user_unit
from rla_client.contract.text.command_line import examples


@app.command(
    "install-service",
    epilog=examples("rla-agent install-service", "sudo rla-agent install-service --system --data-root /data"),
)
def install_service(
    user: Annotated[bool, typer.Option("--user", help="A unit of your user (the default).")] = False,
    system: Annotated[
        bool, typer.Option("--system", help="A hardened system unit that runs as one user; needs root.")
    ] = False,
    data_root: Annotated[
        list[Path] | None,
        typer.Option("--data-root", help="A folder that the service may write to (--system); repeatable."),
    ] = None,
    for_user: Annotated[
        str,
        typer.Option(
            "--for-user", help="The user whom the system unit serves; default: the one who called sudo."
        ),
    ] = "",
    destination: Annotated[
        Path | None, typer.Option("--destination", help="Write the files below this folder instead.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write a systemd unit and print the commands that enable it, without running them."""
    settings_of(config)
    if user and system:
        fail("choose one of --user and --system", EXIT_USAGE)
    if data_root and not system:
        fail("--data-root is for --system; a user unit may write wherever you may", EXIT_USAGE)
    with failures():
        if system:
            lines = install_system_unit(data_root or [], for_user, destination, config)
        else:
            lines = install_user_unit(destination, config)
    typer.echo("\n".join(lines))
