"""Grouping key of a value.

Two values are the same if their texts are (`group_text`). A number equals the text that Python prints for
it, since old databases keep values as text: 0.1 and '0.1', 1 and 1.0 and '1.0'. Any other text equals only
itself: '1.10' and '1.1' are two versions, '007' is a name. A list equals its text, also with braces, which
an index has instead of brackets. Nothing is rounded: 0.1234567 and 0.1234568 are two groups with two
labels. NaN counts as None: a DataFrame has it where a run has no value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf|nan")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 2000  # a longer number is a text
_EXACT = 1 << 53  # below this bound a whole float is exactly one integer
NO_VALUE = "None"


def group_text(value: object) -> str:
    """Text of a value that runs are grouped by; equal exactly if two values are the same."""
    item = getattr(value, "item", None)  # a numpy scalar, from a DataFrame
    if callable(item) and getattr(value, "ndim", None) == 0:
        value = item()
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and _NUMBER.fullmatch(value):
        number = int(value) if _WHOLE.fullmatch(value) else float(value)
        value = number if repr(number) == value else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NO_VALUE
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(float(value))
    if isinstance(value, list | tuple):
        return str(list(value))
    text = str(value)
    listed = text[:1] == "{" and text[-1:] == "}" and ":" not in text
    return f"[{text[1:-1]}]" if listed else text


def group_order(text: str) -> tuple[int, float, str]:
    """Sort key of a group by this text: numbers by size, then texts, then no value."""
    if _NUMBER.fullmatch(text):
        return 0, float(text), text
    return 2 if text == NO_VALUE else 1, 0.0, text


def group_label(by: Sequence[str], texts: Sequence[str]) -> str:
    """Label such as `lr=0.1, seed=3`, unique for each group.

    A text that could be mistaken for the next name, or for a quoted text, is quoted as in JSON.
    """
    return ", ".join(f"{name}={quoted(text)}" for name, text in zip(by, texts, strict=True))


def quoted(text: str) -> str:
    """A text as written after `name=`, quoted where it would be ambiguous."""
    return json.dumps(text, ensure_ascii=False) if "=" in text or text[:1] == '"' else text
