"""Command `rla-agent transfer allow`."""

from __future__ import annotations

import typer

from rla_agent.command.master_session import master_session, session_failures
from rla_agent.command.transfer.group import transfer_app
from rla_agent.command.transfer.options import ItemsArgument, KindOption, ProjectOption, read_items
from rla_agent.replicate import command_markers, tombstones
from rla_agent.replicate.status_text import shown_target
from rla_client.contract.agent.places import find_places
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.text.command_line import examples


@transfer_app.command(
    "allow",
    epilog=examples(
        "rla-agent transfer allow --config rla_config.yaml RUN",
        "rla-agent transfer allow --config rla_config.yaml - < runs.txt",
    ),
)
def allow(items: ItemsArgument, config: ProjectOption, kind: KindOption = None) -> None:
    """Allow removed runs to be sent to the master again; its trash stays as it is."""
    with session_failures():
        subjects = tombstones.subjects_of(read_items(items), tuple(kind) if kind else DEFAULT_LOG_TYPES)
        with master_session(config) as (name, session):
            count = tombstones.drop_tombstones(session, subjects)
        command_markers.ask_retry(find_places().state)
    there = shown_target(name)
    if count:
        typer.echo(f"took {count} tombstone(s) off {there}; these runs are sent there again")
        typer.echo("on other machines that hold them: rla-agent replicate retry")
    else:
        typer.echo(f"{there} has no tombstone of these runs; nothing keeps them from being sent there")
