"""Short texts of answers, within bounds.

Answers are for a reader that pays by the word: CSV instead of aligned tables, and a bound for each. Names,
notes and log lines come from other people's runs: control characters are shown as `?`, and a value cannot
begin a line of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rla_client.contract.text.csv_lines import rows_text
from rla_client.database.text.safe_text import clean

MAX_CHARS = 12_000  # of an answer: some 4,000 tokens
MAX_CELL = 160
NOTE_CHARS = 600  # room for the lines below a table


def cell(value: object) -> str:
    """A value as one short text; nothing for None."""
    if value is None:
        return ""
    text = clean(" ".join(map(str, value)) if isinstance(value, list | tuple) else value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def table(names: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """Rows as CSV, as many as an answer holds, and notes below them, in parentheses.

    Args:
        names: of the columns.
        rows: values, one for each column.
        notes: one line each; an empty one is left out.
    """
    texts = [[cell(one) for one in row] for row in (names, *rows)]
    lines = rows_text(texts).removesuffix("\n").split("\n")
    shown, room = 0, MAX_CHARS - NOTE_CHARS
    while shown < len(lines) and (room := room - len(lines[shown]) - 1) >= 0:
        shown += 1
    told = [f"({clean(note)})" for note in notes if note]
    if shown < len(lines):
        told.append(
            f"(cut after {max(shown - 1, 0)} of {len(rows)} rows: ask for fewer columns, or a lower limit)"
        )
    return "\n".join([*lines[:shown], *told])


def pairs(values: Mapping[str, object], most: int) -> list[str]:
    """`name: value` lines, the first `most`, and how many more there are."""
    lines = [f"  {cell(name)}: {cell(value)}" for name, value in list(values.items())[:most]]
    return [*lines, *([f"  (and {len(values) - most} more)"] if len(values) > most else [])]


def bounded(text: str, advice: str) -> str:
    """A text, cut at the end of a line where it is too long for an answer."""
    if len(text) <= MAX_CHARS:
        return text
    kept = text[: MAX_CHARS - NOTE_CHARS]
    return f"{kept[: kept.rfind(chr(10)) + 1] or kept}(cut: {advice})"
