"""Command `rla-agent forget`."""

from __future__ import annotations

from typing import Annotated

import typer

from rla_agent.command.failures import EXIT_USAGE, fail
from rla_agent.command.group import app
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.text.command_line import examples


@app.command("forget", epilog=examples("rla-agent forget", "rla-agent forget /old/data --yes"))
def forget(
    roots: Annotated[
        list[str] | None, typer.Argument(metavar="[DATA_ROOT]...", help="Data roots that no longer exist.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All data roots that are missing now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only list.")] = False,
) -> None:
    """Delete rows that wait for a data root which will not come back. Lists them first."""
    from rla_agent.service.forget import chosen, forget_streams, listing, waiting_streams  # noqa: PLC0415 - loads the sinks

    places = find_places()
    try:
        streams = waiting_streams(places.spool) if places.spool.is_dir() else []
        if not streams:
            typer.echo("no ended stream waits for a data root")
            return
        if yes and not roots and not every:
            fail("name the data roots to give up, or --all", EXIT_USAGE)
        some = chosen(streams, roots or (), every=every or not roots)
        typer.echo("\n".join(listing(some)))
        if not yes:
            typer.echo("nothing was changed; to delete these rows for good: rla-agent forget DATA_ROOT --yes")
            return
        forget_streams(places, some)
    except (RlaError, OSError) as error:
        fail(error)
    typer.echo(f"{len(some)} streams given up")
