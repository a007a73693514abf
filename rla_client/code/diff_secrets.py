"""Redaction of secrets in a diff."""

from __future__ import annotations

import re

from rla_client.code.hidden_text import HIDDEN, hide_in_url, is_secret_value
from rla_client.code.secret_names import ANY, secrecy

_LITERAL = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]{1,100})(?P<sign>["']?\s*[:=]\s*)"""
    r"""(?:(?P<quoted>"[^"]+"|'[^']+')|(?P<bare>[^\s"'(){}\[\],]+)(?=\s*,?\s*$))"""
)
MAX_MASKED_LINE_CHARS = 1000  # longer lines are generated text, in which the search would be slow


def hide_in_diff(text: str) -> str:
    """Hide literals that are assigned to names of secrets, and passwords in URLs."""
    return "\n".join(_hide_in_line(line) for line in text.split("\n"))


def _hide_in_line(line: str) -> str:
    if len(line) > MAX_MASKED_LINE_CHARS:
        return line

    def literal(match: re.Match[str]) -> str:
        level, value = secrecy(match["name"]), (match["quoted"] or match["bare"]).strip("\"'")
        name_of_another = match["bare"] and level != ANY and not re.search(r"\d", value)
        if name_of_another or not is_secret_value(level, value):
            return match[0]
        return f"{match['name']}{match['sign']}{HIDDEN}"

    return hide_in_url(_LITERAL.sub(literal, line))
