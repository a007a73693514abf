"""Samples as text for people."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rla_client.contract.sample_members import HEAD_CHARS

LONG = ("prompt", "completion", "truth", "error")  # each in a block of its own; other columns share one line


def sample_text(row: Mapping[str, Any]) -> str:
    """A whole sample."""
    facts: list[str] = []
    blocks: list[str] = []
    for name, value in _facts(row):
        text = _date(value) if name == "timestamp" else cell_text(value)
        if name in LONG or len(text) > HEAD_CHARS or "\n" in text:
            blocks.append(f"--- {name}\n{text}")
        elif value is not None and value != "":
            facts.append(f"{name} {text}")
    return "\n".join(["  ".join(facts), *blocks])


def _facts(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The cells, with dicts of numbers split into their entries."""
    for name, value in row.items():
        if isinstance(value, dict) and value and all(isinstance(one, int | float) for one in value.values()):
            yield from ((f"{name}/{key}", number) for key, number in value.items())
        else:
            yield name, value


def _date(timestamp: object) -> str:
    """Local time of Unix seconds."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(timestamp))))
    except (ValueError, OverflowError, OSError):
        return cell_text(timestamp)


def cell_text(value: object) -> str:
    """One cell: text as it is, a conversation by turns, other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    turns = list(_turns(value))
    return "\n".join(turns) if turns else json.dumps(value, ensure_ascii=False)


def _turns(value: object) -> Iterator[str]:
    if not isinstance(value, list) or not all(isinstance(one, dict) and "role" in one for one in value):
        return
    for message in value:
        content = message.get("content")
        if isinstance(content, list):
            content = "\n".join(
                str(part.get("text", json.dumps(part, ensure_ascii=False)))
                if isinstance(part, dict)
                else str(part)
                for part in content
            )
        if isinstance(thought := message.get("reasoning_content") or message.get("reasoning"), str):
            yield f"[reasoning] {thought}".rstrip()
        yield f"[{message['role']}] {content if content is not None else ''}".rstrip()
        for call in message.get("tool_calls") or ():
            yield f"[tool call] {json.dumps(call, ensure_ascii=False)}"
