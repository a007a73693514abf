"""Numbers as text for people."""

from __future__ import annotations

from typing import TypeVar

MAX_WHOLE = 2.0**53  # up to here floats represent whole numbers exactly
_Value = TypeVar("_Value")


def bytes_text(count: float) -> str:
    """Bytes such as `12 B`, `3.4 kB`, `5.6 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def plain(value: _Value) -> _Value | int:
    """A value with a whole float as an int, unless it is too large to be exact."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < MAX_WHOLE else value
