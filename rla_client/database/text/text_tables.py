"""Aligned tables for a terminal.

Tables fit the width (of the terminal, or COLUMNS, or 80): columns that do not fit are dropped from the
right and listed below the table, long cells are cut with `…`. Colours are used only on a terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache

from rla_client.contract.text.terminal_text import indented, text_width
from rla_client.database.text.safe_text import clean

MAX_CELL = 40  # characters; `rla show` prints long values in full
MAX_WHOLE_CELL = 120  # in a pipe: wider than most indices; a longer value only shifts its own line
MIN_CELL = 6
WHOLE = 1 << 20  # no limit
_STATE_COLOURS = {
    "running": "32",
    "finished": "36",
    "interrupted": "33",
    "failed": "31",
    "killed": "31",
    "stalled": "33",
    "unknown": "33",
    "silent": "33",
    "waiting": "33",
}


def width() -> int:
    """Width of the output in columns."""
    return max(shutil.get_terminal_size((80, 24)).columns, 20)


@cache
def colours() -> bool:
    """Whether the output may hold colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def cut(text: str, room: int) -> str:
    """A text cut to at most `room` columns."""
    if text_width(text) <= room:
        return text
    kept, used = [], 1
    for mark in text:
        used += text_width(mark)
        if used > room:
            break
        kept.append(mark)
    return "".join(kept) + "…"


def table_text(names: Sequence[str], rows: Sequence[Sequence[object]], room: int | None = None) -> str:
    """An aligned table with numbers to the right, and a note if there is no room for all columns."""
    whole = room is None and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    room = WHOLE if whole else width() if room is None else room
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    texts = [[clean(name), *map(clean, column)] for name, column in zip(names, columns, strict=True)]
    most = MAX_WHOLE_CELL if whole else MAX_CELL
    widths = [min(max(_widths(column)), most) for column in texts]
    shown = _fitting(widths, room)
    if shown < len(names) and shown:
        left = room - sum(widths[:shown]) - 2 * shown
        if left >= MIN_CELL:
            widths[shown] = left
            shown += 1
    aligned = [
        _aligned(texts[place], widths[place], to_right=_all_numbers(columns[place]), whole=whole)
        for place in range(shown)
    ]
    lines = ["  ".join(line).rstrip() for line in zip(*aligned, strict=True)]
    if shown < len(names):
        hidden = ", ".join(column[0] for column in texts[shown:])
        lines.append(cut(f"(not shown for want of room: {hidden}; --json has all)", room))
    return "\n".join(lines)


def _widths(texts: Sequence[str]) -> list[int]:
    """Width of each text; the check for ASCII makes 10,000 rows take 2 ms."""
    return list(map(len if "".join(texts).isascii() else text_width, texts))


def _aligned(texts: list[str], wide: int, *, to_right: bool, whole: bool) -> list[str]:
    """Texts padded to a width, and cut to it unless `whole`."""
    found = _widths(texts)
    if max(found) > wide and not whole:
        texts = [cut(text, wide) for text in texts]
        found = _widths(texts)
    gaps = [" " * (wide - used) for used in found]
    if colours():
        texts = list(map(_coloured, texts))
    pairs = zip(gaps, texts, strict=True) if to_right else zip(texts, gaps, strict=True)
    return [first + second for first, second in pairs]


def _fitting(widths: list[int], room: int) -> int:
    used = 0
    for count, wide in enumerate(widths):
        used += wide + (2 if count else 0)
        if used > room:
            if count == 0:
                widths[0] = room
                return 1
            return count
    return len(widths)


def _all_numbers(column: Sequence[object]) -> bool:
    kinds = set(map(type, column)) - {type(None)}
    if kinds <= {int, float}:
        return bool(kinds)
    return all(_looks_like_number(value) for value in column if value is not None)


def _looks_like_number(value: object) -> bool:
    if isinstance(value, str):
        return value[-1:].isdecimal() and value.lstrip("-").replace(".", "", 1).isdecimal()
    return isinstance(value, int | float) and not isinstance(value, bool)


def _coloured(text: str) -> str:
    code = _STATE_COLOURS.get(text)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def pairs_text(pairs: Mapping[str, object], *, whole: bool = False) -> str:
    """Lines of `name  value`; long values are cut, or wrapped below themselves if `whole`."""
    room = width()
    names = [clean(name) for name in pairs]
    wide = min(max((text_width(name) for name in names), default=0), max(room // 2 - 4, 8))
    lines = []
    for name, value in zip(names, pairs.values(), strict=True):
        head = cut(name, wide)
        head += " " * (wide - text_width(head))
        before = f"  {head}  "
        if whole:
            parts = str(value).splitlines() if isinstance(value, str) else [value]
            texts = [
                indented(clean(part), room, " " * text_width(before), " " * text_width(before))
                for part in parts
            ]
            lines.append(before + "\n".join(texts)[text_width(before) :])
        else:
            lines.append(before + cut(clean(value), room - wide - 4))
    return "\n".join(lines)
