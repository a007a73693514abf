"""Alerts by webhook."""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from rla_agent.alerts.bodies import Plain
from rla_agent.alerts.deadline import Deadline
from rla_agent.alerts.route import (
    MAX_ANSWER_BYTES,
    MAX_SHOWN_CHARS,
    Route,
    SendError,
    reason_of,
    secret_of,
    tls_context,
)
from rla_agent.alerts.webhook_request import webhook_request

TOO_MANY = 429
TOKEN_CHARS = 6  # length of a part of an address; a shorter one is no secret


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


def post_webhook(route: Route, alerts: Sequence[Plain]) -> None:
    """Post alerts as one request."""
    channel = route.channel
    address = channel.url or secret_of(route, channel.url_env, channel.url_file)
    if not address.startswith(("http://", "https://")):
        raise SendError("the address of the webhook must begin with http:// or https://")
    host = _host_of(address)
    request = webhook_request(channel.kind, address, alerts)
    until = Deadline(channel.timeout_s)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), _Http(until)]
    if address.startswith("https:"):
        handlers.append(_Https(until, tls_context(route)))
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
        reason = reason_of(error.reason) if isinstance(error.reason, Exception) else str(error.reason)
        raise SendError(f"{host}: {reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SendError(f"{host}: {reason_of(error)}") from None


def _host_of(address: str) -> str:
    """Host of a webhook's address, without urllib's errors, which would show all of a wrong one.

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
    """An answer without the parts of the address that may be a token, since some servers echo it."""
    for part in sorted(re.split(r"[/?&=:@#]", address.partition("://")[2]), key=len, reverse=True):
        if len(part) >= TOKEN_CHARS:
            said = said.replace(part, "…")
    return said


def _wait(error: urllib.error.HTTPError) -> float | None:
    """Seconds that the server asks to wait; dates are ignored."""
    try:
        return max(0.0, float(error.headers.get("Retry-After", ""))) if error.code == TOO_MANY else None
    except ValueError:
        return None
