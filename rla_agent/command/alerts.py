"""`rla-agent alerts test` and `rla-agent alerts show`."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from rla_agent.alerts.channels import Route, SendError, send
from rla_agent.alerts.rules import RuleSet, of_test
from rla_agent.control import ask_status
from rla_agent.store.config_reader import ConfigReader
from rla_client.config.alerts import AlertRule, Alerts, Channel
from rla_client.config.schema import load_config
from rla_client.contract.errors import AgentNotRunningError, ConfigError, RlaError
from rla_client.contract.paths import find_places
from rla_client.contract.user_messages import examples

EXIT_FAILED, EXIT_STATE, EXIT_CONFIG = 1, 3, 5

alerts_app = typer.Typer(
    help="Messages when a run fails, stalls, …: see docs/how-to/alerts.md.", no_args_is_help=True
)
ConfigOption = Annotated[
    Path, typer.Option("--config", help="the rla_config.yaml with the section AGENT.alerts")
]


def _fail(why: object, code: int) -> NoReturn:
    typer.echo(f"error: {why}", err=True)
    raise typer.Exit(code)


def _alerts_of(config: Path) -> Alerts:
    """The section of a file; ends with all its faults, or when it has none.

    Raises:
        Exit: see above.
    """
    try:
        found = load_config(config).agent.alerts
    except ConfigError as error:
        _fail(error, EXIT_CONFIG)
    if found is None or not found.channels:
        _fail(f"{config} names no channel in AGENT.alerts", EXIT_CONFIG)
    return found


@alerts_app.command("test", epilog=examples("rla-agent alerts test", "rla-agent alerts test --channel mail"))
def send_test(
    config: ConfigOption = Path("rla_config.yaml"),
    channel: Annotated[list[str] | None, typer.Option("--channel", help="only this one; repeatable")] = None,
) -> None:
    """Send a test message through each channel, from this shell, and report the result."""
    found = _alerts_of(config)
    names = [known.name for known in found.channels]
    unknown = [name for name in channel or () if name not in names]
    if unknown:
        _fail(f"no channel is called {unknown[0]!r}; there are: {', '.join(names)}", EXIT_CONFIG)
    rule_set, path = RuleSet(None, ConfigReader()), os.path.abspath(config)
    failed = False
    for known in found.channels:
        if channel and known.name not in channel:
            continue
        told = _try(rule_set, path, known)
        failed |= bool(told)
        typer.echo(f"{known.name} ({known.kind}): {told or 'sent'}")
    if any(known.password_env or known.url_env for known in found.channels):
        typer.echo("note: variables were taken from this shell; the agent needs them too (rla-agent doctor)")
    raise typer.Exit(EXIT_FAILED if failed else 0)


def _try(rule_set: RuleSet, config: str, channel: Channel) -> str:
    """Send one test message; what went wrong, empty when nothing did."""
    host = socket.gethostname() or "localhost"
    _, refused = rule_set.channel(config, channel.name)
    try:
        send(Route(channel, Path(config).parent, refused), [of_test(time.time(), host).to_plain()], host)
    except SendError as error:
        return str(error)
    return ""


@alerts_app.command(
    "show", epilog=examples("rla-agent alerts show", "rla-agent alerts show --config rla_config.yaml")
)
def show(
    *,
    config: ConfigOption = Path("rla_config.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the rules of a configuration, and which messages were sent or are waiting."""
    try:
        told: dict[str, Any] | None = ask_status(find_places()).get("alerts")
    except AgentNotRunningError:
        told = None
    except RlaError as error:
        _fail(error, EXIT_STATE)
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
