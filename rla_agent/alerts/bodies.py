"""Bodies of messages: mail, JSON, JSON of Slack's or Discord's shape.

Names of runs come from users: they are escaped so that they can neither ping a channel nor add a header.
Several alerts in one message are listed; the first ones in full.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from typing import Any

ALERT_FORMAT = 1  # of the JSON
IN_FULL = 5  # of a longer list; the others by their title
MAX_SLACK_CHARS = 3000  # one section of theirs
MAX_DISCORD_CHARS = 2000  # their limit for content
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
