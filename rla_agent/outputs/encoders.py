"""What every append-only sink does: records in, bytes out. Here also the encoders of text, JSON and CSV.

An encoder's bytes are a function of the records alone (wall time from the record, never from a clock), so
that a replay writes the same bytes and an open reader stays valid. An encoder also knows how its records
end, so that a file (`Content`, read piece by piece) is repaired, resumed and replicated at the end of one.
`output.FORMATS` lists the sinks.

log.txt, warn.txt and backup.txt hold text in the order of the calls; log.txt also has the tables.

progress.csv has one row a dump, and columns that may grow: the first row's keys, sorted, are the columns;
keys that come later are appended at the end, sorted among themselves, and older rows get empty cells (RLA's
format, with proper quoting). Each row has `time-step` and `timestamp`. New columns need a rewrite of the
file: `widened` gives the new content piece by piece; who calls it decides when and does the files.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any, ClassVar

from rla_agent.model.ingest import Record, Row, Text
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.contract.text.csv_lines import cells_of
from rla_client.contract.text.row_table import NUMBERS, format_table

CHUNK_BYTES = 1 << 20
CSV_SINK, JSON_SINK, LOG_SINK = "csv", "json", "log"  # what `exclude` and LOG_USED call them
NUL = "\0"
_NEWLINE = re.compile(rb"\n")


class Content:
    """The first `size` bytes of a file.

    Args:
        descriptor: the open file; stays open, its offset as it is.
        size: bytes that count; None: all that it has now.
    """

    def __init__(self, descriptor: int, size: int | None = None) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size if size is None else size

    def chunks(self, offset: int = 0) -> Iterator[bytes]:
        """All of it from `offset` on, in pieces that end anywhere."""
        return read_chunks(self._descriptor, self.size, offset)

    def at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes."""
        return os.pread(self._descriptor, count, offset)

    def end_of_lines(self) -> int:
        """Bytes up to the last newline, with it."""
        for end in range(self.size, 0, -CHUNK_BYTES):
            start = max(0, end - CHUNK_BYTES)
            found = self.at(start, end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
        return 0


def values_for(row: Row, sink: str) -> Mapping[str, Any]:
    """What of a row is for a sink."""
    excluded = row.excluded
    if not excluded:
        return row.values
    return {key: value for key, value in row.values.items() if sink not in excluded.get(key, ())}


def read_chunks(descriptor: int, size: int, offset: int = 0) -> Iterator[bytes]:
    """The first `size` bytes of a file from `offset` on, piece by piece."""
    while offset < size:
        chunk = os.pread(descriptor, min(CHUNK_BYTES, size - offset), offset)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)


def ends_in(chunks: Iterable[bytes], ends: Callable[[bytes], list[int]]) -> Iterator[int]:
    """Offsets after each whole record of a content in pieces that end anywhere.

    Args:
        chunks: the pieces.
        ends: where records end in bytes that begin with one.
    """
    begin, rest = 0, b""
    for chunk in chunks:
        rest += chunk
        found = ends(rest)
        for end in found:
            yield begin + end
        if found:
            begin, rest = begin + found[-1], rest[found[-1] :]


def cut(
    content: Content,
    begin: int,
    ends: Iterable[int],
    rows: int | None,
    is_later: Callable[[bytes], bool] | None,
) -> tuple[int, int]:
    """Bytes of a content to keep, and rows in them.

    Args:
        content: of the file.
        begin: where its first row begins.
        ends: where its rows end.
        rows: so many stay; None: `is_later` counts.
        is_later: the rows before the first for which it is true stay; None: all.
    """
    keep = begin
    count = 0
    for end in ends:
        if rows is not None:
            if count >= rows:
                break
        elif is_later is not None and is_later(content.at(keep, end - keep)):
            break
        keep, count = end, count + 1
    return keep, count


def later_than(time_step: float | None, step_of: Callable[[bytes], float]) -> Callable[[bytes], bool] | None:
    """What tells `cut` that a record is of a later time-step: never one that has none."""
    if time_step is None:
        return None
    limit = time_step

    def is_later(record: bytes) -> bool:
        try:
            return step_of(record) > limit
        except (ValueError, TypeError, LookupError):
            return False

    return is_later


@dataclass(frozen=True, slots=True)
class Whole:
    """What of a file that somebody else put there can be gone on from."""

    size: int  # bytes of it that are whole records, but for `ending`
    ending: bytes  # what the last of them lacks: editors leave out the last newline
    state: dict[str, Any]  # of an encoder that continues behind them


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of a file where a run continues at an earlier point."""

    size: int  # bytes that stay
    state: dict[str, Any]  # of an encoder that continues behind them
    head: bytes = b""  # what a file of the rest has to begin with, to be read by itself


class Encoder(ABC):
    """Encodes records for one output.

    Attributes:
        rows: rows encoded so far, over the whole output.
        takes_rows: whether rows leave anything in the output.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.takes_rows = True

    def head(self) -> bytes:
        """Bytes that open a fresh output."""
        return b""

    @abstractmethod
    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """Bytes of the first `n` records, and `n`.

        `n < len(records)` says that the output must be rewritten before it can take the next
        record (a CSV whose columns grow).
        """

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` makes an encoder that continues at this point."""
        return {"rows": self.rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.rows = int(state.get("rows", 0))

    @staticmethod
    def ends(data: bytes) -> list[int]:
        """Positions behind each whole record (here, line) of bytes that begin at one; none behind damage."""
        return line_ends(data)

    def end_of_records(self, content: Content) -> int:
        """Bytes of a file up to the end of its last whole record; of a text, of its last line."""
        return content.end_of_lines()

    @abstractmethod
    def whole_part(self, content: Content) -> Whole:
        """Where the output may continue in a file that is not as it left it; size 0 when nowhere."""

    def kept(self, content: Content, rows: int | None, time_step: float | None) -> Kept | None:
        """What stays when the run continues at an earlier point; None: all, as it is.

        Args:
            content: the whole file.
            rows: so many rows stay; None: `time_step` counts.
            time_step: the rows before the first of a later one stay; None: all whole ones.
        """
        del content, rows, time_step
        return None


def line_ends(data: bytes) -> list[int]:
    """Positions behind each newline."""
    return [match.end() for match in _NEWLINE.finditer(data)]


class TextEncoder(Encoder):
    """Encodes the text of one target, and the table of each row if `tables`.

    Args:
        target: a TextTarget bit.
        tables: whether rows are written as tables, as RLA's log.txt has them.
    """

    def __init__(self, target: int, *, tables: bool) -> None:
        super().__init__()
        self.takes_rows = tables
        self._target = target

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """See Encoder."""
        parts: list[str] = []
        for _end, content in records:
            kind = type(content)
            if kind is Text:
                if content.targets & self._target:  # type: ignore[union-attr]
                    parts.append(content.text)  # type: ignore[union-attr]
            elif kind is Row and self.takes_rows:
                parts.append(self._table(content))  # type: ignore[arg-type]
        return "".join(parts).encode("utf-8", "backslashreplace"), len(records)

    def _table(self, row: Row) -> str:
        values = values_for(row, LOG_SINK)
        self.rows += 1
        if not values:
            return ""
        return format_table({**values, TIME_STEP: row.step})  # of Unix seconds three digits tell nothing

    def whole_part(self, content: Content) -> Whole:
        """All of it: a line may end anywhere. All is `kept`, too: a text tells of what was."""
        return Whole(content.size, missing_newline(content), {})


def missing_newline(content: Content) -> bytes:
    """What a text lacks to end with a newline."""
    return b"" if content.size and content.at(content.size - 1, 1) == b"\n" else b"\n"


class RowEncoder(Encoder):
    """The encoder of a sink whose file is one record a row and nothing else.

    A subclass says how a record looks, where it ends and of which time-step it is; the rest of an
    `Encoder` follows from that.
    """

    sink: ClassVar[str]  # what `exclude` and LOG_USED call it

    @staticmethod
    @abstractmethod
    def record(values: dict[str, Any]) -> bytes:
        """A row's record.

        Keys are text, values plain: numbers (integers of any size), text, None, lists of them.
        """

    @staticmethod
    @abstractmethod
    def time_step(record: bytes) -> float:
        """Of which time-step a record is; ValueError, TypeError or LookupError where it has none."""

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """See Encoder."""
        parts: list[bytes] = []
        for _end, content in records:
            if type(content) is Row:
                values = values_for(content, self.sink)
                self.rows += 1
                if values:
                    parts.append(
                        self.record({**values, TIME_STEP: content.step, TIMESTAMP: content.timestamp})
                    )
        return b"".join(parts), len(records)

    def end_of_records(self, content: Content) -> int:
        """See Encoder."""
        return max(ends_in(content.chunks(), self.ends), default=0)

    def whole_part(self, content: Content) -> Whole:
        """See Encoder."""
        size, count = cut(content, 0, ends_in(content.chunks(), self.ends), None, None)
        return Whole(size, b"", {"rows": count})

    def kept(self, content: Content, rows: int | None, time_step: float | None) -> Kept | None:
        """See Encoder."""
        later = later_than(time_step, self.time_step)
        size, count = cut(content, 0, ends_in(content.chunks(), self.ends), rows, later)
        return Kept(size, {"rows": count})


class JsonEncoder(RowEncoder):
    """progress.json: a JSON object a line."""

    sink = JSON_SINK

    @staticmethod
    def record(values: dict[str, Any]) -> bytes:
        """See RowEncoder; what JSON cannot hold (bytes, which no logger of ours sends) as its repr."""
        try:
            text = json.dumps(values)
        except TypeError:
            text = json.dumps(values, skipkeys=True, default=repr)
        return f"{text}\n".encode()

    @staticmethod
    def time_step(record: bytes) -> float:
        """See RowEncoder."""
        return float(json.loads(record)[TIME_STEP])

    def end_of_records(self, content: Content) -> int:
        """See Encoder; from behind, for a line is a record."""
        return content.end_of_lines()

    def whole_part(self, content: Content) -> Whole:
        """See Encoder; a last line without its newline counts where it is a whole object."""
        size, ending = content.size, missing_newline(content)
        last = content.end_of_lines()
        if ending and not _is_json(content.at(last, size - last)):
            size, ending = last, b""
        lines = sum(chunk.count(b"\n") for chunk in content.chunks())
        return Whole(size, ending, {"rows": lines + len(ending)})


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


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

    def whole_part(self, content: Content) -> Whole:
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
                return Whole(size, ending, {"rows": records - 1, "columns": columns})
            last, records = before, records - 1
        return Whole(last, b"", {"rows": max(0, records - 1), "columns": columns})

    def kept(self, content: Content, rows: int | None, time_step: float | None) -> Kept | None:
        """See Encoder."""
        ends = record_ends(content.chunks())
        head = content.at(0, next(ends, 0))
        columns = cells(head)

        def step_of(record: bytes) -> float:
            return float(dict(zip(columns, cells(record), strict=False)).get(TIME_STEP) or 0)

        size, count = cut(content, len(head), ends, rows, later_than(time_step, step_of))
        return Kept(size, {"rows": count, "columns": columns}, head)


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

    What no reader takes is escaped: lone surrogates, and NUL, which readers take for the tail of a power cut.
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
                for match in _NEWLINE.finditer(part):
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
        None where the header is the encoder's, or neither is the other one before or after a widening.
    """
    found, columns = read_header(descriptor), encoder.columns
    both = min(len(found), len(columns))
    if not both or found == columns or found[:both] != columns[:both]:
        return None
    encoder.set_columns(found)
    return offset_of_row(read_chunks(descriptor, os.fstat(descriptor).st_size), encoder.rows)


def offset_of_row(chunks: Iterable[bytes], rows: int) -> int:
    """Bytes of the header and the first `rows` rows; fewer when the content ends before."""
    return max(islice(record_ends(chunks), rows + 1), default=0)
