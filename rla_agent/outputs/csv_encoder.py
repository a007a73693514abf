"""Encoder of progress.csv.

progress.csv has one row for each dump. Its columns are the first row's keys, sorted; later keys are appended
at the end, sorted among themselves, and older rows get empty cells (RLA's format, with proper quoting). Each
row has `time-step` and `timestamp`. New columns need a rewrite of the file: `widened` yields the new content
piece by piece, and its caller (`pipeline/csv_widening.py`) decides when to write it.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from rla_agent.model.records import Record, Row
from rla_agent.outputs.encoder import CSV_SINK, Encoder, TruncatePlan, WholePart, values_for
from rla_agent.outputs.file_content import (
    CHUNK_BYTES,
    NEWLINE,
    FileContent,
    cut,
    later_than,
    missing_newline,
    read_chunks,
)
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.contract.text.csv_lines import cells_of
from rla_client.contract.text.printed_row import NUMBERS

NUL = "\0"


class CsvEncoder(Encoder):
    """Encodes rows; stops before a row that has unknown columns."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []
        self._known: frozenset[str] = frozenset()
        self._pick: Any = None

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """See Encoder."""
        lines: list[Sequence[Any]] = []
        used = 0
        for _end, content in records:
            if type(content) is Row:
                line = self._line(content)
                if line is None:
                    if self.columns:
                        break
                    self.set_columns(sorted(row_keys(content)))
                    lines.append(self.columns)
                    line = self._line(content)
                if line:
                    lines.append(line)
                    self.rows += 1
            used += 1
        return to_csv(lines), used

    def _line(self, row: Row) -> Sequence[Any] | None:
        values = row.values
        if row.excluded:
            values = values_for(row, CSV_SINK)
            if not values:
                return ()
        values = {**values, TIME_STEP: row.step, TIMESTAMP: row.timestamp}
        if len(values) == len(self.columns) and self._pick is not None:
            try:
                line: Sequence[Any] = self._pick(values)
            except KeyError:
                return None
            return line
        if not self._known.issuperset(values):
            return None
        get = values.get
        return [get(column) for column in self.columns]

    def set_columns(self, columns: list[str]) -> None:
        """Use these columns from now on."""
        self.columns = columns
        self._known = frozenset(columns)
        self._pick = itemgetter(*columns) if columns else None

    def state(self) -> dict[str, Any]:
        """See Encoder."""
        return {"rows": self.rows, "columns": list(self.columns)}

    def restore(self, state: dict[str, Any]) -> None:
        """See Encoder."""
        super().restore(state)
        self.set_columns([str(column) for column in state.get("columns", ())])

    @staticmethod
    def ends(data: bytes) -> list[int]:
        """See Encoder."""
        return list(record_ends((data,)))

    def whole_part(self, content: FileContent) -> WholePart:
        """See Encoder; a last row without its newline counts where it has all cells.

        A newline inside quotes ends no record here, while `end_of_records` counts it.
        """
        size, ending = content.size, missing_newline(content)
        header = before = last = records = 0
        for end in record_ends(chain(content.chunks(), (ending,))):
            header, before, last = header or end, last, end
            records += 1
        columns = cells(content.at(0, header))
        if ending and last > size:
            if len(cells(content.at(before, size - before))) == len(columns):
                return WholePart(size, ending, {"rows": records - 1, "columns": columns})
            last, records = before, records - 1
        return WholePart(last, b"", {"rows": max(0, records - 1), "columns": columns})

    def kept(
        self, content: FileContent, rows: int | None, time_step: float | None, saved: float = -math.inf
    ) -> TruncatePlan | None:
        """See Encoder."""
        ends = record_ends(content.chunks())
        head = content.at(0, next(ends, 0))
        columns = cells(head)

        def step_of(record: bytes) -> float:
            return float(dict(zip(columns, cells(record), strict=False)).get(TIME_STEP) or 0)

        def moment_of(record: bytes) -> float:
            return float(dict(zip(columns, cells(record), strict=False))[TIMESTAMP])

        later = later_than(time_step, step_of, saved, moment_of)
        size, count = cut(content, len(head), ends, rows, later)
        return TruncatePlan(size, {"rows": count, "columns": columns}, head)


def cells(record: bytes) -> list[str]:
    """The cells of one record; Python 3.10's reader refuses NUL."""
    return cells_of(record.replace(b"\0", b"").decode("utf-8", "replace"))


def row_keys(row: Row) -> set[str]:
    """Columns that a row needs."""
    return {*map(str, values_for(row, CSV_SINK)), TIME_STEP, TIMESTAMP}


def new_columns(columns: Sequence[str], records: Iterable[Record]) -> list[str]:
    """Columns that `records` need beyond `columns`, row by row sorted among themselves."""
    known = set(columns)
    added: list[str] = []
    for _end, content in records:
        if type(content) is Row:
            late = sorted(row_keys(content) - known)
            known.update(late)
            added.extend(late)
    return added


def to_csv(lines: Sequence[Sequence[Any]]) -> bytes:
    """CSV text of some lines: floats by repr, None as an empty cell, quotes where needed.

    Characters that readers refuse are escaped: lone surrogates, and NUL, which marks the tail of a power cut.
    """
    if not lines:
        return b""
    if NUMBERS.issuperset(map(type, chain.from_iterable(lines))):  # nothing to quote
        return ("\n".join([",".join(map(repr, line)) for line in lines]) + "\n").encode()
    buffer = io.StringIO(newline="")
    try:
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        text = buffer.getvalue()
    except csv.Error:  # Python 3.10 refuses NUL
        text = NUL
    if NUL in text:
        return to_csv([[_escaped(cell) for cell in line] for line in lines])
    if "\r" in text:
        text = "".join(map(_line_with_returns, lines))
    return text.encode("utf-8", "backslashreplace")


def _escaped(cell: object) -> object:
    return cell.replace(NUL, "\\x00") if isinstance(cell, str) else cell


def _line_with_returns(line: Sequence[Any]) -> str:
    """One line; Python's writer quotes a carriage return only where lines end with one."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerow(line)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def widened(chunks: Iterable[bytes], columns: Sequence[str], added: int) -> Iterator[bytes]:
    """The content of a CSV with `added` further columns.

    Args:
        chunks: the old content, in pieces that end anywhere.
        columns: all columns, the added ones last.
        added: how many are new; each old row gets as many empty cells.

    Yields:
        The new content. A record separator is a newline outside quotes.
    """
    fill = b"," * added + b"\n"
    yield to_csv([columns])
    pieces, head, end = iter(chunks), b"", 0
    for piece in pieces:
        head += piece
        end = next(record_ends((head,)), 0)
        if end:
            break
    quoted = False
    for piece in chain((head[end:],), pieces) if end else ():
        if b'"' not in piece and not quoted:
            yield piece.replace(b"\n", fill)
            continue
        parts = piece.split(b'"')
        for position, part in enumerate(parts):
            outside = quoted == bool(position % 2)
            parts[position] = part.replace(b"\n", fill) if outside else part
        quoted ^= len(parts) % 2 == 0
        yield b'"'.join(parts)


def record_ends(chunks: Iterable[bytes]) -> Iterator[int]:
    """Offsets after each whole record, the header's first; newlines inside quotes end none.

    Args:
        chunks: the content, in pieces that end anywhere.
    """
    offset, quoted = 0, False
    for chunk in chunks:
        for number, part in enumerate(chunk.split(b'"')):
            if number:
                quoted = not quoted
                offset += 1
            if not quoted:
                for match in NEWLINE.finditer(part):
                    yield offset + match.end()
            offset += len(part)


def read_header(descriptor: int) -> list[str]:
    """Columns of a CSV; empty for an empty file."""
    whole = os.fstat(descriptor).st_size
    tried = length = 0
    while not length and tried < whole:
        tried = min(whole, tried * 4 or CHUNK_BYTES)
        length = offset_of_row(read_chunks(descriptor, tried), 0)
    return cells(os.pread(descriptor, length, 0))


def size_by_header(descriptor: int, encoder: CsvEncoder) -> int | None:
    """Bytes of a CSV's header and the rows of its encoder, which takes over the header.

    Returns:
        None where the header is the encoder's, or neither is a widened form of the other.
    """
    header, columns = read_header(descriptor), encoder.columns
    both = min(len(header), len(columns))
    if not both or header == columns or header[:both] != columns[:both]:
        return None
    encoder.set_columns(header)
    return offset_of_row(read_chunks(descriptor, os.fstat(descriptor).st_size), encoder.rows)


def offset_of_row(chunks: Iterable[bytes], rows: int) -> int:
    """Bytes of the header and the first `rows` rows; fewer when the content ends before."""
    return max(islice(record_ends(chunks), rows + 1), default=0)
