"""Alerts by e-mail."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parseaddr

from rla_agent.alerts.bodies import Plain, mail
from rla_agent.alerts.deadline import Deadline
from rla_agent.alerts.route import (
    MAX_SHOWN_CHARS,
    Route,
    SendError,
    port_of,
    reason_of,
    secret_of,
    tls_context,
    where_of,
)


def send_mail(route: Route, alerts: Sequence[Plain], host: str) -> None:
    """Send alerts as one e-mail."""
    channel = route.channel
    password = ""
    if channel.username:
        password = secret_of(route, channel.password_env, channel.credentials_file)
    message = mail(alerts, channel.sender or channel.to[0], channel.to, host)
    sender = parseaddr(str(message["From"]))[1]
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in host) or "localhost"
    try:
        server = _Smtp(route, name)
        try:
            if channel.security == "starttls":
                server.starttls(context=server.context)
            if password:
                server.login(channel.username, password)
            server.send_message(message, sender, list(channel.to))
            with suppress(smtplib.SMTPException, OSError):  # it is accepted, whatever the answer to QUIT
                server.quit()
        finally:
            server.close()
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error
        told = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        what = "the login was refused" if isinstance(error, smtplib.SMTPAuthenticationError) else "refused"
        raise SendError(f"{where_of(route)}: {what}: {error.smtp_code} {told[:MAX_SHOWN_CHARS]}") from None
    except smtplib.SMTPRecipientsRefused as error:
        told = "; ".join(f"{who}: {code}" for who, (code, _) in error.recipients.items())
        raise SendError(f"{where_of(route)}: recipients refused: {told[:MAX_SHOWN_CHARS]}") from None
    except smtplib.SMTPException as error:
        raise SendError(f"{where_of(route)}: {error}") from None
    except ssl.SSLError:
        raise
    except (OSError, UnicodeError) as error:
        raise SendError(f"{where_of(route)}: {reason_of(error)}") from error


class _Smtp(smtplib.SMTP):
    """A connection for one message, which ends `timeout_s` from now in any case."""

    def __init__(self, route: Route, name: str) -> None:
        channel = route.channel
        self._until = Deadline(channel.timeout_s)
        self._tls = channel.security == "tls"
        self.context = None if channel.security == "none" else self._until.bind(tls_context(route))
        super().__init__(channel.server, port_of(channel), local_hostname=name, timeout=channel.timeout_s)

    def _get_socket(self, host: str, port: int, _timeout: float) -> socket.socket:
        plain = self._until.connect((host, port))
        return self.context.wrap_socket(plain, server_hostname=host) if self._tls and self.context else plain
