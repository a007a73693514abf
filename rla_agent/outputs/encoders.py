"""What every append-only sink does: records in, bytes out. Here also the encoders of text and JSON. Pure.

log.txt, warn.txt and backup.txt hold text in the order of the calls; log.txt also has the tables. An
encoder's bytes are a function of the records alone (wall time from the record, never from a clock), so
that a replay writes the same bytes and an open reader stays valid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rla_agent.model.ingest import Record, Row, Text
from rla_client.contract.textformat import format_table

JSON_SINK = "json"
SINK = "log"


class TextEncoder:
    """Encodes the text of one target, and the table of each row if `tables`.

    Args:
        target: a TextTarget bit.
        tables: whether rows are written as tables, as RLA's log.txt has them.
    """

    def __init__(self, target: int, *, tables: bool) -> None:
        self.rows = 0
        self.takes_rows = tables
        self._target = target
        self._tables = tables

    def head(self) -> bytes:
        """Nothing."""
        return b""

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """See Encoder."""
        parts: list[str] = []
        for _end, content in records:
            kind = type(content)
            if kind is Text:
                if content.targets & self._target:  # type: ignore[union-attr]
                    parts.append(content.text)  # type: ignore[union-attr]
            elif kind is Row and self._tables:
                parts.append(self._table(content))  # type: ignore[arg-type]
        return "".join(parts).encode("utf-8", "backslashreplace"), len(records)

    def _table(self, row: Row) -> str:
        values: Mapping[str, Any] = row.values
        self.rows += 1
        if row.excluded:
            values = {key: value for key, value in values.items() if SINK not in row.excluded.get(key, ())}
        if not values:
            return ""
        return format_table({**values, "time-step": row.step, "timestamp": row.timestamp})

    def state(self) -> dict[str, Any]:
        """See Encoder."""
        return {"rows": self.rows}

    def restore(self, state: dict[str, Any]) -> None:
        """See Encoder."""
        self.rows = int(state.get("rows", 0))


class Encoder(Protocol):
    """Encodes records for one output.

    Attributes:
        rows: rows encoded so far, over the whole output.
        takes_rows: whether rows leave anything in the output.
    """

    rows: int
    takes_rows: bool

    def head(self) -> bytes:
        """Bytes that open a fresh output."""
        ...

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """Bytes of the first `n` records, and `n`.

        `n < len(records)` says that the output must be rewritten before it can take the next
        record (a CSV whose columns grow).
        """
        ...

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` makes an encoder that goes on at this point."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        ...


class JsonEncoder:
    """Encodes rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.takes_rows = True

    def head(self) -> bytes:
        """Nothing."""
        return b""

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """See Encoder."""
        lines: list[str] = []
        for _end, content in records:
            if type(content) is Row:
                excluded = content.excluded or {}
                values = {k: v for k, v in content.values.items() if JSON_SINK not in excluded.get(k, ())}
                self.rows += 1
                if values:
                    values["time-step"] = content.step
                    values["timestamp"] = content.timestamp
                    lines.append(_object(values) + "\n")
        return "".join(lines).encode(), len(records)

    def state(self) -> dict[str, Any]:
        """See Encoder."""
        return {"rows": self.rows}

    def restore(self, state: dict[str, Any]) -> None:
        """See Encoder."""
        self.rows = int(state.get("rows", 0))


def _object(values: dict[str, Any]) -> str:
    """One JSON object; what JSON cannot hold (bytes, which no logger of ours sends) as its repr."""
    try:
        return json.dumps(values)
    except TypeError:
        return json.dumps(values, skipkeys=True, default=repr)
