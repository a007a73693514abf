"""Command `rla-agent transfer remove`, which `rla rm --master` calls."""

from __future__ import annotations

import os
import shlex
import socket
import time

import typer

from rla_agent.command.master_session import master_session, session_failures
from rla_agent.command.transfer.group import transfer_app
from rla_agent.command.transfer.options import (
    ItemsArgument,
    KindOption,
    ProjectOption,
    RootOption,
    read_items,
)
from rla_agent.replicate import master_trash, tombstones
from rla_agent.replicate.status_text import shown_target
from rla_client.contract.agent.places import find_places
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.process.account import user_name
from rla_client.contract.text.command_line import examples


@transfer_app.command(
    "remove",
    epilog=examples(
        "rla-agent transfer remove --config rla_config.yaml --data-root data RUN", "rla rm --master @last"
    ),
)
def remove(
    items: ItemsArgument, config: ProjectOption, data_root: RootOption, kind: KindOption = None
) -> None:
    """Move runs to the master's trash; tombstones there keep machines from sending them again."""
    kinds = tuple(kind) if kind else DEFAULT_LOG_TYPES
    with session_failures():
        chosen = read_items(items)
        with master_session(config) as (name, session):
            about = {"host": socket.gethostname(), "user": user_name() or str(os.getuid())}
            entry = master_trash.move_to_trash(session, chosen, kinds, about, time.time())
        subjects = tombstones.subjects_of(chosen, kinds)
        tombstones.bury_here(find_places().state, str(data_root), name, subjects)
    there = shown_target(name)
    if entry.moves:
        typer.echo(f"moved {len(entry.moves)} item(s) to the trash of {there} as {entry.name}")
        typer.echo(f"undo there: rla-agent transfer trash --config {config} --restore {entry.name}")
    else:
        typer.echo(f"{there} had nothing of these runs; nobody will send them there from now on")
        named = shlex.quote(chosen[0]) if len(chosen) == 1 else "RUN..."
        typer.echo(f"undo there: rla-agent transfer allow --config {config} {named}")
