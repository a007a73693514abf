"""Reader of a table's last row."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass

from rla_client.contract.text.csv_lines import TOO_LONG
from rla_client.database.curves.progress_csv import BLOCK_BYTES, TRUTH_VALUES, UNCLOSED, CsvTable

FIRST_TAIL_BYTES = 16 << 10  # some rows of 20 metrics; doubled until every column has a value
MAX_TAIL_BYTES = 4 << 20  # a column that is empty for longer has no last value here
MAX_COUNTED_BYTES = 16 << 20  # in a longer table, unclosed quotes far from the end are not searched


@dataclass(frozen=True, slots=True)
class Tail:
    """Header and end of a table.

    Attributes:
        columns: the header.
        last: last value of every column that has one near the end; numbers as numbers.
        rows_seen: whether there is at least one complete row.
        torn_bytes: length of an incomplete row at the end.
        quoted_lines: number of line ends after an unclosed quote, which makes all of them one cell.
    """

    columns: tuple[str, ...]
    last: dict[str, object]
    rows_seen: bool
    torn_bytes: int
    quoted_lines: int = 0


def read_tail(path: str | os.PathLike[str], *, all_quotes: bool = False) -> Tail:
    """Header and last values of a table.

    Args:
        path: the table.
        all_quotes: search the whole table for an unclosed quote, if it has at most `MAX_COUNTED_BYTES`.

    Raises:
        BrokenFileError: the file is not a table.
        OSError: the file cannot be opened.
    """
    with CsvTable(path) as table:
        size, begin = table.size, table.start
        if not table.has_header:
            return Tail((), {}, rows_seen=False, torn_bytes=size)
        length = FIRST_TAIL_BYTES
        while True:
            start = max(begin, size - length)
            block = table.read(start, size)
            whole = block.rfind(b"\n") + 1
            if b'"' in block and begin < start and size - begin <= MAX_TAIL_BYTES:
                start, block = (
                    begin,
                    table.read(begin, size),
                )  # rows may hold quoted newlines
                whole = block.rfind(b"\n") + 1
            skip = 0 if start == begin else block.find(b"\n") + 1
            last = _last_values(table, block[skip:whole])
            complete = len(last) == len(table.columns)
            if complete or start == begin or length >= MAX_TAIL_BYTES:
                if start == begin:
                    quoted = quoted_lines(table.read(0, begin) + block[skip:whole])
                else:
                    quoted = _all_quoted_lines(table, start + whole) if all_quotes else 0
                return Tail(table.columns, last, whole > skip, len(block) - whole, quoted)
            length *= 4


def _all_quoted_lines(table: CsvTable, end: int) -> int:
    """`quoted_lines` of a table's first `end` bytes, which are loaded only if quotes are unbalanced."""
    if end > MAX_COUNTED_BYTES:
        return 0
    quotes = sum(table.read(at, min(end, at + BLOCK_BYTES)).count(b'"') for at in range(0, end, BLOCK_BYTES))
    return quoted_lines(table.read(0, end)) if quotes % 2 else 0


def quoted_lines(content: bytes, delimiter: str = ",") -> int:
    """Number of line ends after an unclosed quote; 0 if all quotes are closed."""
    if content.count(b'"') % 2 == 0:
        return 0
    text = content.decode("utf-8", "replace").replace("\0", "")
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    whole = 0
    try:
        for _ in reader:
            whole = reader.line_num
    except csv.Error as error:
        if UNCLOSED in str(error) or TOO_LONG in str(error):
            return text.count("\n") - whole - 1
    return 0


def _last_values(table: CsvTable, block: bytes) -> dict[str, object]:
    last: dict[str, object] = {}
    missing = set(table.columns)
    for row in reversed(table.cells(block)):
        for name, cell in zip(table.columns, row, strict=False):
            if name in missing and cell != "":
                last[name] = to_value(cell)
                missing.discard(name)
        if not missing:
            break
    return {name: last[name] for name in table.columns if name in last}


def to_value(cell: str) -> object:
    """A cell as a number or bool if it spells one, else as text."""
    if cell in TRUTH_VALUES:
        return cell == "True"
    if "_" in cell:
        return cell
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
