"""progress.json: one JSON object a line, scalars as numbers, arrays as lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rla_agent.model.ingest import Record, Row

SINK = "json"


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
                values = {k: v for k, v in content.values.items() if SINK not in excluded.get(k, ())}
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
