"""log.txt, warn.txt, backup.txt: text in the order of the calls; log.txt also has the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rla_agent.model.ingest import Record, Row, Text
from rla_client.contract.textformat import format_table

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
