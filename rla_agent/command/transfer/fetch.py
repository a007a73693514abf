"""Command `rla-agent transfer fetch`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.master_session import session_failures
from rla_agent.command.transfer.group import transfer_app
from rla_agent.replicate.status_text import size_text
from rla_agent.replicate.transfer.fetch_pruned import fetch_back
from rla_client.contract.agent.places import find_places
from rla_client.contract.item.prune_notes import pruned_files
from rla_client.contract.text.command_line import examples


@transfer_app.command(
    "fetch",
    epilog=examples(
        "rla-agent transfer fetch data/checkpoint/cartpole",
        "rla-agent transfer fetch model.pt --config rla_config.yaml",
    ),
)
def fetch(
    paths: Annotated[list[Path], typer.Argument(help="pruned files, or folders that contain some")],
    config: Annotated[Path | None, typer.Option("--config", help="rla_config.yaml of the project")] = None,
) -> None:
    """Bring pruned files back from the master."""
    state = find_places().state
    count = size = 0
    with session_failures():
        for folder, name in [one for path in paths for one in _pruned(path)]:
            size += fetch_back(state, folder, name, None if config is None else str(config))
            count += 1
    typer.echo(f"fetched {count} file(s), {size_text(size)}")


def _pruned(path: Path) -> list[tuple[str, str]]:
    if not path.is_dir():
        return [(str(path.absolute().parent), path.name)]
    return [(here, note.name) for here, _, _ in os.walk(path.absolute()) for note in pruned_files(here)]
