"""Command `rla-agent transfer trash`."""

from __future__ import annotations

import os
import time
from typing import Annotated, Final

import typer

from rla_agent.command.master_session import master_session, session_failures
from rla_agent.command.transfer.group import transfer_app
from rla_agent.command.transfer.options import ProjectOption
from rla_agent.replicate import command_markers, master_trash
from rla_agent.replicate.status_text import shown_target
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import ArgumentError
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.terminal_text import printable

DAY_S: Final = 86400.0


@transfer_app.command(
    "trash",
    epilog=examples(
        "rla-agent transfer trash --config rla_config.yaml",
        "rla-agent transfer trash --config rla_config.yaml --restore ENTRY",
    ),
)
def trash(
    config: ProjectOption,
    *,
    restore: Annotated[str, typer.Option(help="move this entry back, and let it be sent again")] = "",
    empty: Annotated[bool, typer.Option("--empty", help="delete its content for good")] = False,
    older_than_days: Annotated[
        float, typer.Option(min=0, help="with --empty: only entries at least this old")
    ] = 0.0,
) -> None:
    """The master's trash: list (default), restore an entry, empty it."""
    with session_failures():
        if restore and empty:
            raise ArgumentError("choose one of --restore and --empty")
        with master_session(config) as (name, session):
            if restore:
                entry = master_trash.restore(session, restore)
                typer.echo(f"restored {len(entry.moves)} item(s) on {shown_target(name)}")
                command_markers.ask_retry(find_places().state)
            elif empty:
                count = master_trash.empty(session, older_than_days * DAY_S, time.time())
                typer.echo(f"deleted {count} entry(ies) from the trash of {shown_target(name)}")
            else:
                for entry in master_trash.entries(session):
                    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.created))
                    first = printable(os.fsdecode(entry.moves[0][0])) if entry.moves else ""
                    typer.echo(f"{entry.name}  {when}  {len(entry.moves)} item(s)  {first}")
