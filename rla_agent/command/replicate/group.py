"""Group `rla-agent replicate`."""

from __future__ import annotations

import typer

from rla_agent.command.group import app
from rla_client.contract.text.command_line import examples

replicate_app = typer.Typer(help="Replication to the master node.", no_args_is_help=True)
app.add_typer(
    replicate_app,
    name="replicate",
    epilog=examples("rla-agent replicate status", "rla-agent replicate now"),
)
