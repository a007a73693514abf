"""Message bodies of alerts.

Mail, plain text, or JSON in the form that a service takes.

Names of runs come from users: they are escaped so that they can neither ping a channel nor add a header.
Several alerts in one message are listed; the first ones in full.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from typing import Any

ALERT_FORMAT = 1  # of the JSON
IN_FULL = 5  # of a longer list; the others by their title
MAX_SLACK_CHARS = 3000  # one section of theirs
MAX_DISCORD_CHARS = 2000  # their limit for content
MAX_TELEGRAM_CHARS = 4096  # their limit for text
MAX_NTFY_BYTES = 4000  # a longer message becomes an attachment
MAX_CARD_CHARS = 8000  # of 28 kB that a card of Teams may have
MAX_MATRIX_CHARS = 8000  # of 64 kB that an event may have
Plain = dict[str, Any]  # what `Alert.to_plain` gives


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
    """Key of the alerts, by which a message that is sent again after a kill can be recognized."""
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


def plain_body(alerts: Sequence[Plain]) -> bytes:
    """Plain text for ntfy."""
    data = f"{subject(alerts)}\n{text(alerts)}".encode("utf-8", "replace")
    return data[:MAX_NTFY_BYTES].decode("utf-8", "ignore").encode()


def body(kind: str, alerts: Sequence[Plain], chat: str = "") -> bytes:
    """JSON for a webhook of this kind, or for a command; `chat` is Telegram's."""
    if kind in _SHAPES:
        shaped = _SHAPES[kind](alerts)
    elif kind == "telegram":
        named = not chat.removeprefix("-").isdecimal()  # @channel
        shaped = {"chat_id": chat if named else int(chat), "text": _cut(alerts, MAX_TELEGRAM_CHARS)}
    else:
        shaped = {
            "format": ALERT_FORMAT,
            "subject": subject(alerts),
            "text": text(alerts),
            "alerts": list(alerts),
        }
    return json.dumps(_finite(shaped), allow_nan=False).encode()


def _cut(alerts: Sequence[Plain], most: int) -> str:
    found = f"{subject(alerts)}\n{text(alerts)}"
    return found if len(found) <= most else found[: most - 1] + "…"


def _slack(alerts: Sequence[Plain]) -> Plain:
    return {"text": escape(f"*{subject(alerts)}*\n{text(alerts)}", quote=False)[:MAX_SLACK_CHARS]}


def _discord(alerts: Sequence[Plain]) -> Plain:
    content = f"**{subject(alerts)}**\n{text(alerts)}"
    if len(content) > MAX_DISCORD_CHARS:
        content = content[: MAX_DISCORD_CHARS - 1] + "…"
    return {"content": content, "allowed_mentions": {"parse": []}}


def _teams(alerts: Sequence[Plain]) -> Plain:
    """An adaptive card; its blocks of rich text take text as it is, plain ones would read Markdown."""
    lines = _cut(alerts, MAX_CARD_CHARS).split("\n")
    blocks = [
        {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line, "weight": weight}]}
        for line, weight in zip(lines, ["Bolder", *["Default"] * len(lines)], strict=False)
        if line
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": blocks,
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def _matrix(alerts: Sequence[Plain]) -> Plain:
    return {"msgtype": "m.text", "body": _cut(alerts, MAX_MATRIX_CHARS), "m.mentions": {}}


_SHAPES: dict[str, Callable[[Sequence[Plain]], Plain]] = {
    "slack": _slack,
    "discord": _discord,
    "teams": _teams,
    "matrix": _matrix,
}


def _finite(value: object) -> object:
    """Plain data with NaN and infinities as text, since JSON has none and servers refuse the message."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list) else value
