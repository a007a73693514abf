"""Command `rla-agent alerts test`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.alerts.config_section import AlertsOption, alerts_of
from rla_agent.command.alerts.group import alerts_app
from rla_agent.command.failures import EXIT_CONFIG, EXIT_FAILED, fail
from rla_client.contract.text.command_line import examples


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

    found = alerts_of(config)
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
