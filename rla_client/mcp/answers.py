"""Short, bounded texts of answers.

An assistant pays for each word, so tables are CSV and each answer has a bound. Names, notes and log lines
come from other people's runs: control characters become `?`, and a value cannot start a line of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rla_client.contract.text.csv_lines import rows_text
from rla_client.database.text.safe_text import clean

MAX_CHARS = 12_000  # of an answer, about 4,000 tokens
MAX_CELL = 160
NOTE_CHARS = 600  # room for the lines below a table


def cell(value: object) -> str:
    """A value as a short text; empty for None."""
    if value is None:
        return ""
    text = clean(" ".join(map(str, value)) if isinstance(value, list | tuple) else value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def table(names: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """Rows as CSV, as many as fit into an answer, followed by notes in parentheses.

    Args:
        names: of the columns.
        rows: a value for each column.
        notes: one line each; empty ones are left out.
    """
    texts = [[cell(one) for one in row] for row in (names, *rows)]
    lines = rows_text(texts).removesuffix("\n").split("\n")
    shown, room = 0, MAX_CHARS - NOTE_CHARS
    while shown < len(lines) and (room := room - len(lines[shown]) - 1) >= 0:
        shown += 1
    below = [f"({clean(note)})" for note in notes if note]
    if shown < len(lines):
        below.append(
            f"(cut after {max(shown - 1, 0)} of {len(rows)} rows: ask for fewer columns, or a lower limit)"
        )
    return "\n".join([*lines[:shown], *below])


def pairs(values: Mapping[str, object], most: int) -> list[str]:
    """The first `most` values as lines `name: value`, and the number of further ones."""
    lines = [f"  {cell(name)}: {cell(value)}" for name, value in list(values.items())[:most]]
    return [*lines, *([f"  (and {len(values) - most} more)"] if len(values) > most else [])]


def bounded(text: str, advice: str) -> str:
    """A text, cut at a line end if it is too long for an answer."""
    if len(text) <= MAX_CHARS:
        return text
    kept = text[: MAX_CHARS - NOTE_CHARS]
    return f"{kept[: kept.rfind(chr(10)) + 1] or kept}(cut: {advice})"
