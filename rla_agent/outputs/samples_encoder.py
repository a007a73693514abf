"""Encoder of samples.jsonl.gz.

The rows of one call are JSON lines in gzip members of about a megabyte of text (`contract.sample_encoding`).
A row's `id` counts the samples of its file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count

from rla_agent.model.records import Record, Samples
from rla_agent.outputs.encoder import Encoder, TruncatePlan, WholePart
from rla_agent.outputs.file_content import FileContent
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.sample_encoding import SampledAt, encode_samples
from rla_client.contract.sample_members import (
    HEAD_BYTES,
    MemberHead,
    is_whole,
    member_ends,
    member_head,
    read_index,
)


class SamplesEncoder(Encoder):
    """Encodes chunks of samples; `rows` counts samples.

    Args:
        label: of the stream, the samples' `role`.
    """

    def __init__(self, label: str) -> None:
        super().__init__()
        self.takes_rows = False
        self._label = label

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """See Encoder."""
        parts: list[bytes] = []
        for _end, content in records:
            if type(content) is Samples:
                name, step, timestamp, left_out, rows = content
                at = SampledAt(name, self._label, step, timestamp, left_out)
                parts += encode_samples(rows, at, self.rows)
                self.rows += len(rows)
        return b"".join(parts), len(records)

    @staticmethod
    def ends(data: bytes) -> list[int]:
        """See Encoder; by the lengths alone, as it is asked of what this agent wrote."""
        return list(member_ends(data))

    def end_of_records(self, content: FileContent) -> int:
        """See Encoder."""
        return max((at + head.size for at, head in _whole_members(content)), default=0)

    def whole_part(self, content: FileContent) -> WholePart:
        """See Encoder."""
        size = rows = 0
        for at, head in _whole_members(content):
            size, rows = at + head.size, rows + head.rows
        return WholePart(size, b"", {"rows": rows})

    def kept(
        self, content: FileContent, rows: int | None, time_step: float | None, saved: float = -math.inf
    ) -> TruncatePlan | None:
        """See Encoder; `rows` counts samples, and a chunk stays or goes as a whole."""
        size = count_kept = 0
        for at, head in _whole_members(content):
            later = rows is None and time_step is not None and head.step > time_step
            later = later and _recorded(content, at, head) > saved
            if later or (rows is not None and count_kept + head.rows > rows):
                break
            size, count_kept = at + head.size, count_kept + head.rows
        return TruncatePlan(size, {"rows": count_kept})


def _recorded(content: FileContent, at: int, head: MemberHead) -> float:
    """When a member's samples were logged, Unix seconds."""
    try:
        return read_index(content.at(at, HEAD_BYTES + head.index_bytes), head).timestamp
    except RemoteProtocolError:
        return math.inf


def _whole_members(content: FileContent) -> Iterator[tuple[int, MemberHead]]:
    """Offset and header of each member before the first that is torn or damaged."""
    at = 0
    for _ in count():
        head = member_head(content.at(at, HEAD_BYTES))
        if head is None or at + head.size > content.size or not is_whole(content.at(at, head.size)):
            return
        yield at, head
        at += head.size
