"""`rla mcp`: a server of the Model Context Protocol."""

from __future__ import annotations

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import DataRoot
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.errors import extra


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, mcp, LOOK, "rla mcp", "rla mcp --data-root data")


def mcp(data_root: DataRoot = None) -> None:
    """Answer an assistant's questions about runs (Model Context Protocol on stdin and stdout), read-only."""
    database = open_database(data_root)
    database.progress = None
    with extra("mcp", "rla mcp"):
        import pandas as pd  # noqa: F401 - curves need it

        from rla_client.mcp.server import make_server
    make_server(database).run("stdio")
