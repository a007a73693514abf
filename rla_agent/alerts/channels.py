"""Channels of alerts.

Each sends one message by mail, webhook or command. Sending blocks; it is called in a courier's own thread,
never in ingest. A message counts as sent when the other side confirmed it (SMTP 250 for at least one
recipient, HTTP 2xx, exit code 0). It takes `timeout_s` at most, whatever the other side does (deadline.py).
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from rla_agent.alerts.bodies import Plain
from rla_agent.alerts.command_channel import run_command
from rla_agent.alerts.mail import send_mail
from rla_agent.alerts.route import Route, SendError, where_of
from rla_agent.alerts.webhook import post_webhook


def send(route: Route, alerts: Sequence[Plain], host: str) -> None:
    """Send alerts in one message.

    Args:
        route: of the message.
        alerts: of `Alert.to_plain`, at least one.
        host: of this agent.

    Raises:
        SendError: it was not accepted; the text says why.
    """
    if route.refused:
        raise SendError(route.refused)
    try:
        if route.channel.kind == "email":
            send_mail(route, alerts, host)
        elif route.channel.kind == "command":
            run_command(route, alerts)
        else:
            post_webhook(route, alerts)
    except ssl.SSLError as error:
        raise SendError(f"{where_of(route)}: TLS: {error.reason or error}") from error
