"""Encoder of an append-only sink.

An encoder's bytes are a function of the records alone (wall time from the record, never from a clock), so
that a replay writes the same bytes and an open reader stays valid. An encoder also knows how its records
end, so that a file (`FileContent`, read piece by piece) is repaired, resumed and replicated at the end of
one. `formats.FORMATS` lists the sinks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rla_agent.model.records import Record, Row
from rla_agent.outputs.file_content import FileContent, cut, ends_in, later_than, line_ends
from rla_client.contract.layout import TIME_STEP, TIMESTAMP

CSV_SINK, JSON_SINK, LOG_SINK = "csv", "json", "log"  # what `exclude` and LOG_USED call them


def values_for(row: Row, sink: str) -> Mapping[str, Any]:
    """The values of a row that a sink takes."""
    excluded = row.excluded
    if not excluded:
        return row.values
    return {key: value for key, value in row.values.items() if sink not in excluded.get(key, ())}


@dataclass(frozen=True, slots=True)
class WholePart:
    """The part of a foreign file behind which an output can continue."""

    size: int  # bytes of it that are complete records, but for `ending`
    ending: bytes  # what the last of them lacks: editors leave out the last newline
    state: dict[str, Any]  # of an encoder that continues behind them


@dataclass(frozen=True, slots=True)
class TruncatePlan:
    """The part of a file that stays where a run continues at an earlier point."""

    size: int  # bytes that stay
    state: dict[str, Any]  # of an encoder that continues behind them
    head: bytes = b""  # head that makes the rest a readable file of its own


class Encoder(ABC):
    """Encodes records for one output.

    Attributes:
        rows: rows encoded so far, over the whole output.
        takes_rows: whether rows are written to the output.
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
        """Continue where `state` was taken."""
        self.rows = int(state.get("rows", 0))

    @staticmethod
    def ends(data: bytes) -> list[int]:
        """Positions behind each whole record (here, line) of bytes that begin at one; none behind damage."""
        return line_ends(data)

    def end_of_records(self, content: FileContent) -> int:
        """Bytes of a file up to the end of its last whole record; of a text, of its last line."""
        return content.end_of_lines()

    @abstractmethod
    def whole_part(self, content: FileContent) -> WholePart:
        """Where the output may continue in a file that was changed; size 0 when nowhere."""

    def kept(
        self, content: FileContent, rows: int | None, time_step: float | None, saved: float = -math.inf
    ) -> TruncatePlan | None:
        """What stays when the run continues at an earlier point; None: all, as it is.

        Args:
            content: the whole file.
            rows: so many rows stay; None: `time_step` counts.
            time_step: the rows before the first of a later one stay; None: all whole ones.
            saved: Unix seconds; what was recorded before stays, too.
        """
        del content, rows, time_step, saved
        return None


class RowEncoder(Encoder):
    """The encoder of a sink whose file is one record a row and nothing else.

    A subclass defines a record's bytes, its end and its time-step; the rest of an `Encoder` follows.
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

    @staticmethod
    def moment(record: bytes) -> float:
        """When a record was recorded, Unix seconds; as of now where nothing tells. Errors as above."""
        del record
        return math.inf

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

    def end_of_records(self, content: FileContent) -> int:
        """See Encoder."""
        return max(ends_in(content.chunks(), self.ends), default=0)

    def whole_part(self, content: FileContent) -> WholePart:
        """See Encoder."""
        size, count = cut(content, 0, ends_in(content.chunks(), self.ends), None, None)
        return WholePart(size, b"", {"rows": count})

    def kept(
        self, content: FileContent, rows: int | None, time_step: float | None, saved: float = -math.inf
    ) -> TruncatePlan | None:
        """See Encoder."""
        later = later_than(time_step, self.time_step, saved, self.moment)
        size, count = cut(content, 0, ends_in(content.chunks(), self.ends), rows, later)
        return TruncatePlan(size, {"rows": count})
