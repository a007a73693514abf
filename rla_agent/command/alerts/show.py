"""Command `rla-agent alerts show`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_agent.command.alerts.config_section import AlertsOption, alerts_of
from rla_agent.command.alerts.group import alerts_app
from rla_agent.command.failures import EXIT_STATE, fail
from rla_agent.service.control_client import ask_status
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import AgentNotRunningError, RlaError
from rla_client.contract.text.command_line import examples

if TYPE_CHECKING:
    from rla_client.config.alerts import AlertRule


@alerts_app.command(
    "show", epilog=examples("rla-agent alerts show", "rla-agent alerts show --config rla_config.yaml")
)
def show(
    *,
    config: AlertsOption = Path("rla_config.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the rules of a configuration, and which messages were sent or are waiting."""
    try:
        told: dict[str, Any] | None = ask_status(find_places()).get("alerts")
    except AgentNotRunningError:
        told = None
    except RlaError as error:
        fail(error, EXIT_STATE)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for rule in alerts_of(config).rules:
        typer.echo(f"{_in_words(rule)} → {', '.join(rule.send)}")
    if told is None:
        typer.echo("no agent is running: what is to be sent waits for the next one")
        return
    for entry in told["channels"]:
        why = f"; {entry['error']}" if entry["error"] else ""
        typer.echo(f"channel {entry['channel']}: {entry['sent']} sent, {entry['waiting']} wait{why}")
    for event in told["recent"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"]))
        typer.echo(f"{when}  {event['title']}")


def _in_words(rule: AlertRule) -> str:
    """A rule for people."""
    event = rule.when[0]
    tables = "" if rule.table == "*" else f" in {rule.table}"
    rows = f" for {rule.rows} rows" if rule.rows > 1 else ""
    once = ", once" if rule.once else ""
    if event == "nan":
        return f"NaN in {rule.metric}{rows}{tables}{once}"
    if event in {"above", "below"}:
        return f"{rule.metric} {event} {rule.value:g}{rows}{tables}{once}"
    if event == "disk_low":
        return f"less than {rule.free_bytes >> 20} MiB free"
    if event == "replication_parked":
        return "replication has stopped"
    return f"run {' or '.join(rule.when)}{tables}"
