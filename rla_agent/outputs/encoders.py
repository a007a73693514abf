"""What every append-only sink does: records in, bytes out. Here also the encoders of text and JSON.

log.txt, warn.txt and backup.txt hold text in the order of the calls; log.txt also has the tables. An
encoder's bytes are a function of the records alone (wall time from the record, never from a clock), so
that a replay writes the same bytes and an open reader stays valid. An encoder also knows how its records
end, so that a file (`Content`, read piece by piece) is repaired, resumed and replicated at the end of one.
`output.FORMATS` lists the sinks.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rla_agent.ingest import Record, Row, Text
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.contract.textformat import format_table

CHUNK_BYTES = 1 << 20
JSON_SINK = "json"
SINK = "log"


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


@dataclass(frozen=True, slots=True)
class Whole:
    """What of a file that somebody else put there can be gone on from.

    Attributes:
        size: bytes of it that are whole records, but for `ending`.
        ending: what the last of them lacks: editors leave out the last newline.
        state: of an encoder that continues behind them.
    """

    size: int
    ending: bytes
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of a file where a run continues at an earlier point.

    Attributes:
        size: bytes that stay.
        state: of an encoder that continues behind them.
        head: what a file of the rest has to begin with, to be read by itself.
    """

    size: int
    state: dict[str, Any]
    head: bytes = b""


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
    @abstractmethod
    def ends(data: bytes) -> list[int]:
        """Positions just behind each whole record of bytes that begin at one; none behind damage."""

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


def line_ends(data: bytes, *, quoted: bool = False) -> list[int]:
    """Positions behind each newline; `quoted`: but for those between double quotes."""
    ends = []
    at = quotes = start = 0
    quoted = quoted and b'"' in data
    while (at := data.find(b"\n", at)) >= 0:
        at += 1
        if quoted:
            quotes += data.count(b'"', start, at)
            start = at
        if quotes % 2 == 0:
            ends.append(at)
    return ends


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
        values: Mapping[str, Any] = row.values
        self.rows += 1
        if row.excluded:
            values = {key: value for key, value in values.items() if SINK not in row.excluded.get(key, ())}
        if not values:
            return ""
        return format_table({**values, TIME_STEP: row.step, TIMESTAMP: row.timestamp})

    @staticmethod
    def ends(data: bytes) -> list[int]:
        """See Encoder."""
        return line_ends(data)

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
                excluded = content.excluded or {}
                values = {k: v for k, v in content.values.items() if self.sink not in excluded.get(k, ())}
                self.rows += 1
                if values:
                    values[TIME_STEP] = content.step
                    values[TIMESTAMP] = content.timestamp
                    parts.append(self.record(values))
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
        later = None if time_step is None else partial(self._is_later, time_step)
        size, count = cut(content, 0, ends_in(content.chunks(), self.ends), rows, later)
        return Kept(size, {"rows": count})

    def _is_later(self, time_step: float, record: bytes) -> bool:
        try:
            return self.time_step(record) > time_step
        except (ValueError, TypeError, LookupError):
            return False


class JsonEncoder(RowEncoder):
    """progress.json: a JSON object a line."""

    sink = JSON_SINK

    @staticmethod
    def ends(data: bytes) -> list[int]:
        """See Encoder."""
        return line_ends(data)

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
