"""Command `rla-agent drain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.failures import EXIT_PLACE, failures
from rla_agent.command.group import app
from rla_agent.command.options import ConfigOption, settings_of
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@app.command(
    epilog=examples("rla-agent drain", "rla-agent drain --spool /mnt/copy/spool --data-root /old=/new")
)
def drain(
    spool: Annotated[
        Path | None,
        typer.Option("--spool", help="A spool or state folder; may be copied from another machine."),
    ] = None,
    data_root: Annotated[
        list[str] | None,
        typer.Option("--data-root", metavar="OLD=NEW", help="A data root that has moved; repeatable."),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Draw the figures of a copied spool, too, which runs what it brings."),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Write out a spool once and return when all is on disk; if an agent serves it, wait for that agent."""
    from rla_agent.service.drain import drain_spool  # noqa: PLC0415 - loads the sinks

    settings = settings_of(config)
    with failures(code=EXIT_PLACE):
        lines, code = drain_spool(find_places(), spool, data_root or [], settings, trust=trust)
    typer.echo("\n".join(lines))
    raise typer.Exit(code)
