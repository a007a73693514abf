"""The table of one row, as stdout and log.txt show it. Pure, stdlib only, shared with the agent.

::

    ---------------------------------------------------------
    | loss      | 0.25     |
    | time-step | 2048     |
    ---------------------------------------------------------

Keys are sorted without regard to case; a float is `%-8.3g`, anything else `str`; a key or value
longer than 80 characters is cut to 40 and `...`. The right border is straight on a terminal:
wide (CJK) characters count as two columns, combining ones as none, and what cannot be printed
(a newline in a value) is shown escaped. The layout of the key column is kept per set of keys,
since a training loop logs the same ones each time. Shared as well: a record of a CSV,
and how long something took.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_CELL_CHARS = 80
CUT_CELL_CHARS = 40
DASHES_BEYOND_CELLS = 40  # as in the original: its dashes continue to the right of the table
NUMBERS = frozenset((float, int, bool))  # their cells are ASCII and printable
MAX_CACHED_KEYS = 1024  # a row with more keys is laid out each time, so that the cache stays small


def escape_unprintable(*streams: object) -> None:
    """Have text streams write what their encoding does not have as escapes: names come from anywhere."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)  # what tests or an embedder put there has none
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def format_table(row: Mapping[str, object]) -> str:
    """Lay one row out as a table.

    Args:
        row: key to plain value (see `values.to_plain`).

    Returns:
        Lines of text, the last one ended too; empty for an empty row.
    """
    if not row:
        return ""
    keys = tuple(row)
    if len(keys) <= MAX_CACHED_KEYS:
        kinds = tuple(map(type, row.values()))
        if NUMBERS.issuperset(kinds):
            pick, form = _numbers(keys, kinds)
            cells = (form % pick(row)).split("\n")
            width = max(map(len, cells))
            if width <= MAX_CELL_CHARS:
                return _frame(keys, width) % tuple(cells)
    order, heads, key_width = _layout(keys) if len(keys) <= MAX_CACHED_KEYS else _lay_out(keys)
    cells = [_value_cell(row[key]) for key in order]
    if all(map(str.isascii, cells)):
        width = max(map(len, cells))
        lines = [f"{head}{cell:<{width}} |\n" for head, cell in zip(heads, cells, strict=True)]
    else:
        width = max(map(text_width, cells))
        lines = [f"{head}{pad(cell, width)} |\n" for head, cell in zip(heads, cells, strict=True)]
    dashes = "-" * (key_width + width + DASHES_BEYOND_CELLS) + "\n"
    return f"{dashes}{''.join(lines)}{dashes}"


def text_width(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def broken(text: str, width: int) -> list[str]:
    """Text in lines of `width` columns at most: broken at blanks, else after a slash, else anywhere."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        pieces = re.findall(r"/*[^/]+/*|/+", word) if text_width(word) > width else [word]
        for number, piece in enumerate(pieces):
            gap = " " if line and not number else ""
            if line and text_width(line + gap + piece) > width:
                lines.append(line)
                line = gap = ""
            for char in gap + piece:
                if line and text_width(line) + _char_width(char) > width:
                    lines.append(line)
                    line = ""
                line += char
    return [*lines, line]


def indented(text: str, width: int, first: str = "", others: str = "") -> str:
    """Text as `broken` lines, behind `first` and, below, `others` (of the same or another length)."""
    room = max(width - max(text_width(first), text_width(others)), 2)
    return "\n".join((others if number else first) + line for number, line in enumerate(broken(text, room)))


def fitted(text: str, width: int) -> str:
    """Lines as they are, the ones that are longer than `width` broken behind their own indent."""
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(line if text_width(line) <= width else indented(line, width, indent, indent))
    return "\n".join(lines)


def pad(text: str, width: int) -> str:
    """Fill `text` with blanks up to `width` columns."""
    return text + " " * (width - text_width(text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _lay_out(keys: tuple[str, ...]) -> tuple[list[str], list[str], int]:
    """Keys in the order shown, the text before each value, and the key column's width."""
    order = sorted(keys, key=lambda key: (key.lower(), key))
    shown = [_cell(key) for key in order]
    width = max(map(text_width, shown))
    return order, [f"| {pad(key, width)} | " for key in shown], width


_layout = lru_cache(maxsize=256)(_lay_out)


@lru_cache(maxsize=256)
def _numbers(keys: tuple[str, ...], kinds: tuple[type, ...]) -> tuple[Callable[[Any], Any], str]:
    """For a row of numbers: what picks its values in the order shown, and the format of their cells."""
    order = _layout(keys)[0]
    kind_of = dict(zip(keys, kinds, strict=True))
    return itemgetter(*order), "\n".join("%-8.3g" if kind_of[key] is float else "%s" for key in order)


@lru_cache(maxsize=128)
def _frame(keys: tuple[str, ...], width: int) -> str:
    """A whole table with a place for each cell."""
    _, heads, key_width = _layout(keys)
    lines = [head.replace("%", "%%") + f"%-{width}s |\n" for head in heads]
    dashes = "-" * (key_width + width + DASHES_BEYOND_CELLS) + "\n"
    return f"{dashes}{''.join(lines)}{dashes}"


def _value_cell(value: object) -> str:
    if type(value) is float:
        return f"{value:<8.3g}"
    if isinstance(value, float):
        return f"{float(value):<8.3g}"
    return _cell(str(value))


def _cell(text: str) -> str:
    if len(text) > MAX_CELL_CHARS:
        text = text[:CUT_CELL_CHARS] + "..."
    return printable(text)


def printable(text: str) -> str:
    """Text for one line of a terminal or log: control characters, line ends, stray bytes are escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def cells_of(record: str) -> list[str]:
    """Cells of one record; the csv module refuses long ones, by a limit of the whole process."""
    text = record.removesuffix("\n").removesuffix("\r")
    if not text:
        return []
    cells: list[list[str]] = [[]]
    parts = text.split('"')
    for number, part in enumerate(parts):
        if number % 2 or "," not in part:  # inside quotes, or nothing ends here
            doubled = not part and number % 2 == 0 and 0 < number < len(parts) - 1
            cells[-1].append('"' if doubled else part)
        else:
            first, *others = part.split(",")
            cells[-1].append(first)
            cells += [[other] for other in others]
    return ["".join(cell) for cell in cells]


def duration_text(seconds: float | None) -> str | None:
    """How long something took, as every command prints it: `3.2s`, `12m05s`, `3h12m`, `4d03h`; None stays."""
    if seconds is None:
        return None
    seconds = max(seconds, 0.0)  # clocks are set back
    if seconds < 59.95:  # noqa: PLR2004 - from there it would print as 60.0s
        return f"{seconds:.1f}s"
    minutes, rest = divmod(max(int(seconds), 60), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
