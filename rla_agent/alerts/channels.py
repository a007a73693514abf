"""Sending alerts in one message by one channel. Blocks; called in a courier's own thread, never in ingest.

What goes over the wire is a mail, JSON, or JSON of Slack's and Discord's shape. Names of runs come from
users: they are escaped so that they can neither ping a channel nor add a header. Several alerts in one
message are listed; the first ones in full.

Secrets are read from their file or variable when they are needed, and are in no message of ours: an
error names the server, what it answered, or the file. A message counts as sent when the other side
said so (SMTP 250 for a recipient at least, HTTP 2xx, exit code 0). A message takes `timeout_s` at most,
whatever the other side does (deadline.py).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import re
import select
import shutil
import signal
import smtplib
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from rla_agent.alerts.deadline import Deadline
from rla_client.config.alerts import Channel
from rla_client.contract import __version__
from rla_client.contract.filesystem.trusted_paths import file_problem
from rla_client.contract.process.syscalls import memory_file
from rla_client.contract.text.terminal_text import printable

ALERT_FORMAT = 1  # of the JSON
IN_FULL = 5  # of a longer list; the others by their title
MAX_SLACK_CHARS = 3000  # one section of theirs
MAX_DISCORD_CHARS = 2000  # their limit for content
MAX_SECRET_BYTES = 4096
MAX_ANSWER_BYTES = 1000  # of what a server or a command said, for the error
MAX_SHOWN_CHARS = 200
PORTS = {"starttls": 587, "tls": 465, "none": 25}
TOO_MANY = 429
TOKEN_CHARS = 6  # of a part of an address; nobody guards a secret that is shorter
POLL_S = 0.05
HANDED_ON = frozenset({"PATH", "HOME", "USER", "LANG", "TZ"})  # to commands, with LC_* and ALERT_PREFIX*
ALERT_PREFIX = "RLA_ALERT_"
Plain = dict[str, Any]  # what `Alert.to_plain` gives


class SendError(Exception):
    """A message was not sent.

    Attributes:
        retry_after_s: what the server asks for, None if it does not.
    """

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(printable(text))
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Route:
    """A channel, and where its relative paths begin.

    Attributes:
        channel: as the configuration has it.
        folder: of the configuration.
        refused: why it is not used, empty when it is.
    """

    channel: Channel
    folder: Path
    refused: str = ""

    def path(self, name: str) -> Path:
        """A file that the channel names."""
        return self.folder / os.path.expanduser(name)


def send(route: Route, alerts: Sequence[Plain], host: str) -> None:
    """Send alerts in one message.

    Args:
        route: by which channel.
        alerts: what `Alert.to_plain` gave, one at least.
        host: of this agent.

    Raises:
        SendError: it was not accepted; the text says why.
    """
    if route.refused:
        raise SendError(route.refused)
    try:
        if route.channel.kind == "email":
            _mail(route, alerts, host)
        elif route.channel.kind == "command":
            _command(route, alerts)
        else:
            _post(route, alerts)
    except ssl.SSLError as error:
        raise SendError(f"{_where(route)}: TLS: {error.reason or error}") from error


def _where(route: Route) -> str:
    channel = route.channel
    return f"{channel.server}:{_port(channel)}" if channel.kind == "email" else channel.kind


def _port(channel: Channel) -> int:
    return channel.port or PORTS[channel.security]


def _secret_of(route: Route, variable: str, file: str) -> str:
    """A secret that a channel names.

    Raises:
        SendError: it is not there, or others can read the file.
    """
    if variable:
        value = os.environ.get(variable, "")
        if not value:
            raise SendError(f"the agent's environment has no {variable}")
        return value
    path = route.path(file)
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SendError(f"{path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise SendError(f"{path} can be read by others; run: chmod 600 {path}")
    try:
        value = data.decode().strip()
    except UnicodeDecodeError:
        raise SendError(f"{path} is not text") from None
    if not value or len(data) > MAX_SECRET_BYTES or "\n" in value:
        raise SendError(f"{path} must hold one line")
    return value


def _context(route: Route) -> ssl.SSLContext:
    file = route.channel.ca_file
    try:
        return ssl.create_default_context(cafile=str(route.path(file)) if file else None)
    except (OSError, ssl.SSLError) as error:
        raise SendError(f"ca_file {file}: {error.strerror or error}") from error


# -- e-mail -------------------------------------------------------------------------------------


def _mail(route: Route, alerts: Sequence[Plain], host: str) -> None:
    channel = route.channel
    password = ""
    if channel.username:
        password = _secret_of(route, channel.password_env, channel.credentials_file)
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
            with suppress(smtplib.SMTPException, OSError):  # it is accepted, however the farewell goes
                server.quit()
        finally:
            server.close()
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error
        told = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        what = "the login was refused" if isinstance(error, smtplib.SMTPAuthenticationError) else "refused"
        raise SendError(f"{_where(route)}: {what}: {error.smtp_code} {told[:MAX_SHOWN_CHARS]}") from None
    except smtplib.SMTPRecipientsRefused as error:
        told = "; ".join(f"{who}: {code}" for who, (code, _) in error.recipients.items())
        raise SendError(f"{_where(route)}: recipients refused: {told[:MAX_SHOWN_CHARS]}") from None
    except smtplib.SMTPException as error:
        raise SendError(f"{_where(route)}: {error}") from None
    except ssl.SSLError:
        raise
    except (OSError, UnicodeError) as error:
        raise SendError(f"{_where(route)}: {_reason(error)}") from error


class _Smtp(smtplib.SMTP):
    """A connection for one message, which ends `timeout_s` from now in any case."""

    def __init__(self, route: Route, name: str) -> None:
        channel = route.channel
        self._until = Deadline(channel.timeout_s)
        self._tls = channel.security == "tls"
        self.context = None if channel.security == "none" else self._until.bind(_context(route))
        super().__init__(channel.server, _port(channel), local_hostname=name, timeout=channel.timeout_s)

    def _get_socket(self, host: str, port: int, _timeout: float) -> socket.socket:
        plain = self._until.connect((host, port))
        return self.context.wrap_socket(plain, server_hostname=host) if self._tls and self.context else plain


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# -- webhooks -----------------------------------------------------------------------------------


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body."""

    def redirect_request(self, *_arguments: object, **_more: object) -> None:
        """Follow none."""


def _connection(
    kind: type[http.client.HTTPConnection],
    until: Deadline,
    host: str,
    /,
    **more: Any,  # noqa: ANN401
) -> http.client.HTTPConnection:
    made = kind(host, **more)
    made._create_connection = until.connect  # type: ignore[attr-defined] # noqa: SLF001 - the way in it has
    return made


class _Http(urllib.request.HTTPHandler):
    def __init__(self, until: Deadline) -> None:
        super().__init__()
        self._until = until

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, http.client.HTTPConnection, self._until), request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, until: Deadline, context: ssl.SSLContext) -> None:
        super().__init__()
        self._until, self._tls = until, until.bind(context)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        made = partial(_connection, http.client.HTTPSConnection, self._until)
        return self.do_open(made, request, context=self._tls)


def _post(route: Route, alerts: Sequence[Plain]) -> None:
    channel = route.channel
    address = channel.url or _secret_of(route, channel.url_env, channel.url_file)
    if not address.startswith(("http://", "https://")):
        raise SendError("the address of the webhook must begin with http:// or https://")
    host = _host_of(address)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"rla-agent/{__version__}",
        "Idempotency-Key": idempotency_key(alerts),
    }
    request = urllib.request.Request(address, body(channel.kind, alerts), headers)  # noqa: S310
    until = Deadline(channel.timeout_s)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), _Http(until)]
    if address.startswith("https:"):
        handlers.append(_Https(until, _context(route)))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=channel.timeout_s):
            pass  # its status is all that counts; a body may trickle for hours
    except urllib.error.HTTPError as error:
        with suppress(OSError, http.client.HTTPException):
            told = error.read1(MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()[:MAX_SHOWN_CHARS]
            said = _without_secrets(told or str(error.reason), address)
            raise SendError(f"{host}: HTTP {error.code}: {said}", _wait(error)) from None
        raise SendError(f"{host}: HTTP {error.code}", _wait(error)) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            raise error.reason from None
        reason = _reason(error.reason) if isinstance(error.reason, Exception) else str(error.reason)
        raise SendError(f"{host}: {reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SendError(f"{host}: {_reason(error)}") from None


def _host_of(address: str) -> str:
    """Host of a webhook's address; what urllib would say of a wrong one shows all of it.

    Raises:
        SendError: it is not an address.
    """
    try:
        parts = urllib.parse.urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not address.isascii() or not address.isprintable() or " " in address:
        raise SendError("the address of the webhook is not a URL: wrong host or port, or blanks in it")
    return host


def _without_secrets(said: str, address: str) -> str:
    """An answer without the parts of the address that may be a token: some servers repeat it."""
    for part in sorted(re.split(r"[/?&=:@#]", address.partition("://")[2]), key=len, reverse=True):
        if len(part) >= TOKEN_CHARS:
            said = said.replace(part, "…")
    return said


def _wait(error: urllib.error.HTTPError) -> float | None:
    """Seconds that the server asks to wait; dates are not read."""
    try:
        return max(0.0, float(error.headers.get("Retry-After", ""))) if error.code == TOO_MANY else None
    except ValueError:
        return None


# -- commands -----------------------------------------------------------------------------------


def _command_environment(
    of_agent: Mapping[str, str], channel: str, alerts: Sequence[Plain]
) -> dict[str, str]:
    """All that a command sees of the environment: no secret that the agent was given for something else.

    What the user wants a command to have is called RLA_ALERT_….
    """
    events = sorted({str(alert["event"]) for alert in alerts})
    handed_on = {
        name: value
        for name, value in of_agent.items()
        if name in HANDED_ON or name.startswith(("LC_", ALERT_PREFIX))
    }
    return {
        "PATH": os.defpath,
        **handed_on,
        ALERT_PREFIX + "CHANNEL": channel,
        ALERT_PREFIX + "EVENTS": ",".join(events),
        ALERT_PREFIX + "SUBJECT": subject(alerts).replace("\0", ""),
    }


def _command(route: Route, alerts: Sequence[Plain]) -> None:
    """Run the command in a session of its own; the alert comes on stdin, from memory."""
    channel = route.channel
    name = channel.command[0]
    environment = _command_environment(os.environ, channel.name, alerts)
    program = (
        os.path.abspath(route.folder / name) if "/" in name else shutil.which(name, path=environment["PATH"])
    )
    problem = file_problem(program) if program is not None and os.path.exists(program) else None
    if problem is not None:
        raise SendError(f"command {name}: {problem}")
    descriptor = memory_file("rla-alert")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(body("command", alerts))
        os.lseek(descriptor, 0, os.SEEK_SET)
        process = subprocess.Popen(
            list(channel.command),
            stdin=descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=route.folder,
            env=environment,
            start_new_session=True,
            umask=0o022,
            bufsize=0,
        )
    except OSError as error:
        raise SendError(f"command {name}: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    told, code = _await(process, time.monotonic() + channel.timeout_s)
    if code is None:
        raise SendError(f"command {name}: not done within {channel.timeout_s:g} s, and killed")
    if code != 0:
        how = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
        said = f": {told}" if told else ""
        raise SendError(f"command {name}: {how}{said}")


def _await(process: subprocess.Popen[bytes], deadline: float) -> tuple[str, int | None]:
    """The end of what a process printed and its exit code; None when it had to be killed."""
    assert process.stdout is not None
    tail, is_open = b"", True
    with process.stdout:
        while time.monotonic() < deadline:
            if is_open and select.select([process.stdout], [], [], POLL_S)[0]:
                data = os.read(process.stdout.fileno(), 1 << 16)
                is_open = bool(data)
                tail = (tail + data)[-MAX_ANSWER_BYTES:]
            elif process.poll() is not None:  # what it started may still hold the pipe
                break
            elif not is_open:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
    code = process.poll()
    if code is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return tail.decode("utf-8", "replace").strip()[-MAX_SHOWN_CHARS:], code


# -- what is sent -------------------------------------------------------------------------------


def subject(alerts: Sequence[Plain]) -> str:
    """One line."""
    first = str(alerts[0]["title"])
    return f"[rla] {first}" if len(alerts) == 1 else f"[rla] {len(alerts)} alerts: {first} …"


def text(alerts: Sequence[Plain]) -> str:
    """All of it for people."""
    parts = [f"{alert['title']}\n{alert['text']}" for alert in alerts[:IN_FULL]]
    rest = [str(alert["title"]) for alert in alerts[IN_FULL:]]
    if rest:
        parts.append("\n".join([f"and {len(rest)} more:", *rest]))
    return "\n\n".join(parts)


def idempotency_key(alerts: Sequence[Plain]) -> str:
    """The same for the same alerts: a message that is sent again after a kill can be known by it."""
    return hashlib.sha256(" ".join(alert["id"] for alert in alerts).encode()).hexdigest()[:32]


def mail(alerts: Sequence[Plain], sender: str, to: Sequence[str], host: str) -> EmailMessage:
    """The e-mail."""
    message = EmailMessage()
    message["Subject"] = subject(alerts)[:200]
    message["From"] = sender
    message["To"] = ", ".join(to)
    message["Date"] = format_datetime(datetime.fromtimestamp(alerts[0]["time"], timezone.utc))
    message["Message-ID"] = f"<{idempotency_key(alerts)}@{host}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text(alerts) + "\n")
    return message


def body(kind: str, alerts: Sequence[Plain]) -> bytes:
    """JSON for a webhook of this kind, or for a command."""
    if kind == "slack":
        shaped: Plain = {
            "text": escape(f"*{subject(alerts)}*\n{text(alerts)}", quote=False)[:MAX_SLACK_CHARS]
        }
    elif kind == "discord":
        content = f"**{subject(alerts)}**\n{text(alerts)}"
        if len(content) > MAX_DISCORD_CHARS:
            content = content[: MAX_DISCORD_CHARS - 1] + "…"
        shaped = {"content": content, "allowed_mentions": {"parse": []}}
    else:
        shaped = {
            "format": ALERT_FORMAT,
            "subject": subject(alerts),
            "text": text(alerts),
            "alerts": list(alerts),
        }
    return json.dumps(_finite(shaped), allow_nan=False).encode()


def _finite(value: object) -> object:
    """The same with NaN and infinities as text: JSON has none, and servers refuse the message."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list) else value
