"""`rla mcp`: the database for assistants."""

from __future__ import annotations

import typer

from rla_client.cli.options import LOOK, DataRoot, open_database
from rla_client.contract.errors import extra
from rla_client.contract.user_messages import examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=LOOK, epilog=examples("rla mcp", "rla mcp --data-root data"))(mcp)


def mcp(data_root: DataRoot = None) -> None:
    """Answer an assistant's questions about runs (Model Context Protocol on stdin and stdout), read-only."""
    database = open_database(data_root)
    database.progress = None
    with extra("mcp", "rla mcp"):
        import pandas as pd  # noqa: F401 - curves need it

        from rla_client.mcp.server import serve
    serve(database)
