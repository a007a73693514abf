"""Commands `rla-agent alerts …`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_agent.command.failures import EXIT_CONFIG, EXIT_FAILED, EXIT_STATE, fail
from rla_agent.command.group import app
from rla_agent.command.options import settings_of
from rla_agent.service.control_client import ask_status
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import AgentNotRunningError, RlaError
from rla_client.contract.text.command_line import examples

if TYPE_CHECKING:
    from rla_client.config.alerts import AlertRule, Alerts


alerts_app = typer.Typer(
    help="Messages when a run fails, stalls, …: see docs/how-to/alerts.md.", no_args_is_help=True
)
app.add_typer(alerts_app, name="alerts", epilog=examples("rla-agent alerts show", "rla-agent alerts test"))
AlertsOption = Annotated[
    Path, typer.Option("--config", help="the rla_config.yaml with the section AGENT.alerts")
]


def _alerts_of(config: Path) -> Alerts:
    """The section of a file; ends with all its faults, or when it has none."""
    found = settings_of(config).alerts
    if found is None or not found.channels:
        fail(f"{config} names no channel in AGENT.alerts", EXIT_CONFIG)
    return found


@alerts_app.command("test", epilog=examples("rla-agent alerts test", "rla-agent alerts test --channel mail"))
def send_test(
    config: AlertsOption = Path("rla_config.yaml"),
    channel: Annotated[list[str] | None, typer.Option("--channel", help="only this one; repeatable")] = None,
) -> None:
    """Send a test message through each channel, from this shell, and report the result."""
    import socket  # noqa: PLC0415 - only here

    from rla_agent.alerts.channels import send  # noqa: PLC0415 - smtplib
    from rla_agent.alerts.messages import of_test  # noqa: PLC0415
    from rla_agent.alerts.route import Route, SendError  # noqa: PLC0415 - smtplib
    from rla_agent.alerts.rule_files import RuleSet  # noqa: PLC0415
    from rla_agent.store.config_reader import ConfigReader  # noqa: PLC0415

    found = _alerts_of(config)
    names = [known.name for known in found.channels]
    unknown = [name for name in channel or () if name not in names]
    if unknown:
        fail(f"no channel is called {unknown[0]!r}; there are: {', '.join(names)}", EXIT_CONFIG)
    rule_set, path = RuleSet(None, ConfigReader()), os.path.abspath(config)
    host, failed = socket.gethostname() or "localhost", False
    for known in found.channels:
        if channel and known.name not in channel:
            continue
        _, refused = rule_set.channel(path, known.name)
        told = "sent"
        try:
            send(Route(known, Path(path).parent, refused), [of_test(time.time(), host).to_plain()], host)
        except SendError as error:
            told, failed = str(error), True
        typer.echo(f"{known.name} ({known.kind}): {told}")
    if any(known.password_env or known.url_env for known in found.channels):
        typer.echo("note: variables were taken from this shell; the agent needs them too (rla-agent doctor)")
    raise typer.Exit(EXIT_FAILED if failed else 0)


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
    for rule in _alerts_of(config).rules:
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
