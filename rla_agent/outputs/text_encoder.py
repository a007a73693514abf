"""Encoder of text files (`log.txt`, `console.txt`).

They hold text in the order of the calls; log.txt also has the tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from rla_agent.model.records import Record, Row, Text
from rla_agent.outputs.encoder import LOG_SINK, Encoder, WholePart, values_for
from rla_agent.outputs.file_content import FileContent, missing_newline
from rla_client.contract.layout import TIME_STEP
from rla_client.contract.text.printed_row import format_table


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
        return format_table({**values, TIME_STEP: row.step})  # no Unix seconds of three digits

    def whole_part(self, content: FileContent) -> WholePart:
        """All of it: a line may end anywhere. All is `kept`, too: a text tells of what was."""
        return WholePart(content.size, missing_newline(content), {})
