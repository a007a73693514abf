"""Encoder of progress.json."""

from __future__ import annotations

import json
from typing import Any

from rla_agent.outputs.encoder import JSON_SINK, RowEncoder, WholePart
from rla_agent.outputs.file_content import FileContent, missing_newline
from rla_client.contract.layout import TIME_STEP, TIMESTAMP


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

    @staticmethod
    def moment(record: bytes) -> float:
        """See RowEncoder."""
        return float(json.loads(record)[TIMESTAMP])

    def end_of_records(self, content: FileContent) -> int:
        """See Encoder; from behind, for a line is a record."""
        return content.end_of_lines()

    def whole_part(self, content: FileContent) -> WholePart:
        """See Encoder; a last line without its newline counts where it is a whole object."""
        size, ending = content.size, missing_newline(content)
        last = content.end_of_lines()
        if ending and not _is_json(content.at(last, size - last)):
            size, ending = last, b""
        lines = sum(chunk.count(b"\n") for chunk in content.chunks())
        return WholePart(size, ending, {"rows": lines + len(ending)})


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
