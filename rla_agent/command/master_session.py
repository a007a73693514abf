"""Session with the master that a configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import typer

from rla_agent.replicate import registry, target_config
from rla_agent.replicate.backend.session import TargetSession
from rla_client.config.schema import load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError

EXIT_STAYED, EXIT_MASTER = 1, 2


@contextmanager
def session_failures() -> Iterator[None]:
    """Context in which a failure ends the command, with its hint."""
    try:
        yield
    except (RlaError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        if hint := getattr(error, "hint", ""):
            typer.echo(f"  → {hint}", err=True)
        raise typer.Exit(EXIT_MASTER) from None


@contextmanager
def master_session(config: Path) -> Iterator[tuple[str, TargetSession]]:
    """The name of the master that a configuration names, and a session with it."""
    target = target_config.target(load_config(config), registry.folder(find_places().state))
    with closing(target.open()) as session:
        yield target.name, session
