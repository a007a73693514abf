"""Text table of one row.

::

    ---------------------------------------------------------
    | loss      | 0.25     |
    | time-step | 2048     |
    ---------------------------------------------------------

Keys are sorted without regard to case; a float is `%-8.3g`, anything else `str`; a key or value longer than
80 characters is cut to 40 and `...`. The layout of the key column is kept per set of keys, since a training
loop logs the same ones each time.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rla_client.contract.text.terminal_text import pad, printable, text_width

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


MAX_CELL_CHARS = 80
CUT_CELL_CHARS = 40
DASHES_BEYOND_CELLS = 40  # as in the original: its dashes continue to the right of the table
NUMBERS = frozenset((float, int, bool))  # their cells are ASCII and printable
MAX_CACHED_KEYS = 1024  # a row with more keys is laid out each time, so that the cache stays small


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
            try:
                cells = (form % pick(row)).split("\n")
            except ValueError:  # an integer of more digits than Python writes
                cells = [" " * (MAX_CELL_CHARS + 1)]
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


def _lay_out(keys: tuple[str, ...]) -> tuple[list[str], list[str], int]:
    """Keys in the order shown, the text before each value, and the key column's width."""
    order = sorted(keys, key=lambda key: (key.lower(), key))
    shown = [_cell(key) for key in order]
    width = max(map(text_width, shown))
    return order, [f"| {pad(key, width)} | " for key in shown], width


_layout = lru_cache(maxsize=256)(_lay_out)


@lru_cache(maxsize=256)
def _numbers(keys: tuple[str, ...], kinds: tuple[type, ...]) -> tuple[Callable[[Any], Any], str]:
    """For a row of numbers: a getter of its values in printed order, and the format of their cells."""
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
    try:
        return _cell(str(value))
    except ValueError:  # integers, alone or in a list, of more digits than Python writes
        return f"<{type(value).__name__}: too long>"


def _cell(text: str) -> str:
    if len(text) > MAX_CELL_CHARS:
        text = text[:CUT_CELL_CHARS] + "..."
    return printable(text)
