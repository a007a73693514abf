"""Group `rla-agent alerts`."""

from __future__ import annotations

import typer

from rla_agent.command.group import app
from rla_client.contract.text.command_line import examples

alerts_app = typer.Typer(
    help="Messages when a run fails, stalls, …: see docs/how-to/alerts.md.", no_args_is_help=True
)
app.add_typer(alerts_app, name="alerts", epilog=examples("rla-agent alerts show", "rla-agent alerts test"))
