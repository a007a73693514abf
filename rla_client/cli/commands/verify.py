"""`rla verify`: comparison of the master with the sent files."""

from __future__ import annotations

import typer

from rla_client.cli.agent_transfer import add_transfer


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_transfer(app, "verify")
