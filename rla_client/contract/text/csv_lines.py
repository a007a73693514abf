"""Unambiguous CSV lines.

They end with a newline alone. Python's writer then quotes cells with a newline, but not those with a lone
carriage return, which pandas and the csv module read as the end of a row. It quotes both where its line ends
have both: so it is configured for these, and they are replaced on their way to the file.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


TOO_LONG = "larger than field limit"  # what the csv module says of a cell
LINE_END = "\r\n"  # of the writer; `NewlineEnds` takes it off again


class TextSink(Protocol):
    """What rows are written to; opened with `newline=""`, so that it leaves line ends alone."""

    def write(self, text: str, /) -> object:
        """Take some text."""


class NewlineEnds(io.TextIOBase):
    r"""Replaces `\r\n` at the end of lines, one at each call, with `\n`.

    Args:
        sink: gets the lines.
    """

    def __init__(self, sink: TextSink) -> None:
        self._sink = sink

    def writable(self) -> bool:
        """For pandas."""
        return True

    def write(self, text: str, /) -> int:
        """Pass a line on."""
        self._sink.write(text.removesuffix(LINE_END) + "\n")
        return len(text)


def write_rows(sink: TextSink, rows: Iterable[Sequence[object]]) -> None:
    """Write rows to a text file that was opened with `newline=""`; NUL is escaped, as the agent does.

    Raises:
        OSError: what the file's `write` raises.
    """
    csv.writer(NewlineEnds(sink), lineterminator=LINE_END).writerows(
        [cell.replace("\0", "\\x00") if isinstance(cell, str) else cell for cell in row] for row in rows
    )


def rows_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as text, the last one ended too."""
    text = io.StringIO(newline="")
    write_rows(text, rows)
    return text.getvalue()


def split_rows(text: str, delimiter: str = ",") -> list[list[str]]:
    r"""Rows of a table as text; a quoted line end stays in its cell, and a cell may be of any length.

    Only `\n`, `\r\n` and, where nothing is quoted, a lone `\r` end a row, not the further
    characters that `str.splitlines` cuts at: those stand in cells that no writer quotes.

    Raises:
        csv.Error: it is not CSV.
    """
    text = text.replace("\0", "")  # what a power cut leaves; Python 3.10's reader refuses it
    if "\r" in text and '"' not in text:  # the original quotes nothing
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    try:
        ended = (f"{line}\n" for line in lines) if '"' in text else lines
        return list(csv.reader(ended, delimiter=delimiter))
    except csv.Error as error:
        if TOO_LONG not in str(error):
            raise
    return [cells_of(record, delimiter) for record in _records(lines)]


def cells_of(record: str, delimiter: str = ",") -> list[str]:
    """Cells of one record, also long ones, which the csv module refuses by a process-wide limit."""
    text = record.removesuffix("\n").removesuffix("\r")
    if not text:
        return []
    cells: list[list[str]] = [[]]
    parts = text.split('"')
    for number, part in enumerate(parts):
        if number % 2 or delimiter not in part:  # inside quotes, or nothing ends here
            doubled = not part and number % 2 == 0 and 0 < number < len(parts) - 1
            cells[-1].append('"' if doubled else part)
        else:
            first, *others = part.split(delimiter)
            cells[-1].append(first)
            cells += [[other] for other in others]
    return ["".join(cell) for cell in cells]


def stream_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """`split_rows` of lines with their ends, one record at a time.

    Raises:
        csv.Error: it is not CSV.
    """
    for record in _records(lines, joint=""):
        yield from split_rows(record)


def _records(lines: Iterable[str], joint: str = "\n") -> Iterator[str]:
    """Lines joined where a quoted cell has their ends."""
    record: list[str] = []
    quotes = 0
    for line in lines:
        record.append(line)
        quotes += line.count('"')
        if quotes % 2 == 0:
            yield joint.join(record)
            record.clear()
    if record:
        yield joint.join(record)
