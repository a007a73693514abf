"""HTTP request of a webhook, as its service takes it.

Secrets that a service takes in the address as users paste it (Telegram's chat, Matrix's token) go where the
service documents them.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from rla_agent.alerts.bodies import Plain, body, idempotency_key, plain_body
from rla_agent.alerts.route import SendError
from rla_client.contract import __version__


def webhook_request(kind: str, address: str, alerts: Sequence[Plain]) -> urllib.request.Request:
    """The request that sends alerts in one message.

    Args:
        kind: of the channel.
        address: of the webhook, as the user gave it: an http or https URL.
        alerts: what `Alert.to_plain` gave, one at least.

    Raises:
        SendError: the address lacks what a service of this kind needs.
    """
    key = idempotency_key(alerts)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"rla-agent/{__version__}",
        "Idempotency-Key": key,
    }
    method = "POST"
    if kind == "ntfy":
        headers["Content-Type"] = "text/plain; charset=utf-8"
        data = plain_body(alerts)
    elif kind == "telegram":
        address, chat = _taken_out(address, "chat_id", "https://api.telegram.org/bot<token>/sendMessage")
        data = body(kind, alerts, chat)
    elif kind == "matrix":
        place = "https://<server>/_matrix/client/v3/rooms/<room>/send/m.room.message"
        address, token = _taken_out(address, "access_token", place)
        headers["Authorization"] = f"Bearer {token}"
        address, method = f"{address.rstrip('/')}/{quote(key)}", "PUT"  # one that is repeated is sent once
        data = body(kind, alerts)
    else:
        data = body(kind, alerts)
    return urllib.request.Request(address, data, headers, method=method)  # noqa: S310 - the caller looked


def _taken_out(address: str, name: str, form: str) -> tuple[str, str]:
    """An address without its query, and one value of that."""
    parts = urlsplit(address)
    value = parse_qs(parts.query).get(name, [""])[0]
    if not value:
        raise SendError(f"the address must end in ?{name}=…: {form}?{name}=…")
    return urlunsplit(parts._replace(query="")), value
