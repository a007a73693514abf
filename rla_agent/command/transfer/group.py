"""Group `rla-agent transfer`."""

from __future__ import annotations

import typer

from rla_agent.command.group import app
from rla_client.contract.text.command_line import examples

transfer_app = typer.Typer(help="Fetch from, send to and verify the master by hand.", no_args_is_help=True)
app.add_typer(
    transfer_app,
    name="transfer",
    epilog=examples("rla-agent transfer fetch data/checkpoint/cartpole", "rla pull"),
)
