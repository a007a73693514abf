"""Encoder of samples.jsonl.gz.

The rows of one call are JSON lines in gzip members of about a megabyte of text; what can be sorted and
filtered is in each member's index (`contract.sample_members`). A row's `id` counts the samples of its file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from rla_agent.model.records import Record, Samples
from rla_agent.outputs.encoder import Encoder, TruncatePlan, WholePart
from rla_agent.outputs.file_content import FileContent
from rla_client.contract.sample_members import (
    HEAD_BYTES,
    HEAD_CHARS,
    MEMBER_INDEX_BYTES,
    MEMBER_ROWS,
    MEMBER_TEXT_BYTES,
    Index,
    MemberHead,
    encode_member,
    group_of,
    is_whole,
    member_ends,
    member_head,
)
from rla_client.contract.spool.protocol import pack

OWN_COLUMNS: Final = ("id", "step", "timestamp", "name", "role")  # of each row, by whoever writes it
MAX_COLUMNS = 200  # of one row in the index; all of it is in the JSON lines
MAX_COLUMN_CHARS = 100
REWARDS = "rewards"  # {name: number}, a column each


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
                parts += self._members(content)
        return b"".join(parts), len(records)

    def _members(self, samples: Samples) -> Iterator[bytes]:
        lines: list[bytes] = []
        entries: list[dict[str, Any]] = []
        text_bytes = index_bytes = 0
        left_out = samples.left_out
        for row in samples.rows:
            whole = self._whole_row(row, samples)
            line = _json(whole)
            entry = index_entry(whole)
            size = len(pack(entry))
            if lines and (
                len(lines) >= MEMBER_ROWS
                or text_bytes + len(line) > MEMBER_TEXT_BYTES
                or index_bytes + size > MEMBER_INDEX_BYTES
            ):
                yield _member(samples, left_out, entries, lines)
                lines, entries, text_bytes, index_bytes, left_out = [], [], 0, 0, 0
            lines.append(line)
            entries.append(entry)
            text_bytes += len(line)
            index_bytes += size
        if lines or left_out:
            yield _member(samples, left_out, entries, lines)

    def _whole_row(self, row: dict[str, Any], samples: Samples) -> dict[str, Any]:
        number = self.rows
        self.rows += 1
        name = f"{self._label}-{number}" if self._label else str(number)
        whole: dict[str, Any] = {"id": name, "step": samples.step, "timestamp": samples.timestamp}
        whole |= {"name": samples.name, "role": self._label}
        for key, value in row.items():
            whole[f"_{key}" if key in OWN_COLUMNS else key] = value
        if whole.get("group") is None and "prompt" in whole:
            whole["group"] = group_of(whole["prompt"])
        return whole

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

    def kept(self, content: FileContent, rows: int | None, time_step: float | None) -> TruncatePlan | None:
        """See Encoder; `rows` counts samples, and a chunk stays or goes as a whole."""
        size = count_kept = 0
        for at, head in _whole_members(content):
            later = rows is None and time_step is not None and head.step > time_step
            if later or (rows is not None and count_kept + head.rows > rows):
                break
            size, count_kept = at + head.size, count_kept + head.rows
        return TruncatePlan(size, {"rows": count_kept})


def index_entry(row: dict[str, Any]) -> dict[str, Any]:
    """What of a row can be sorted, filtered and shown in a list.

    Numbers and short texts as they are; of longer ones, and of the last of some messages, the first
    characters and, as `<key>_chars`, the length.
    """
    entry: dict[str, Any] = {}
    for key, value in _flat(row):
        if len(entry) >= MAX_COLUMNS:
            break
        if len(key) > MAX_COLUMN_CHARS or key in {"step", "timestamp", "name", "role"}:
            continue
        kind = type(value)
        if kind is str:
            entry[key] = value[:HEAD_CHARS]
            if len(value) > HEAD_CHARS:
                entry[f"{key}_chars"] = len(value)
        elif kind is int and not -(1 << 63) <= value < 1 << 63:
            entry[key] = float("inf") if value > 0 else float("-inf")
        elif kind in {int, float, bool}:
            entry[key] = value
        elif kind is list and value:
            text = _last_text(value)
            if text is not None:
                entry[key] = text[:HEAD_CHARS]
                entry[f"{key}_chars"] = len(text)
    return entry


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if key == REWARDS and type(value) is dict:
            for name, reward in value.items():
                yield f"{REWARDS}/{name}", reward
        else:
            yield key, value


def _last_text(messages: list[Any]) -> str | None:
    """The text of the last of some messages; None where they are none."""
    last = messages[-1]
    content = last.get("content") if isinstance(last, dict) else None
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = " ".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else None


def _member(samples: Samples, left_out: int, entries: list[dict[str, Any]], lines: list[bytes]) -> bytes:
    names = dict.fromkeys(name for entry in entries for name in entry)
    columns = {name: [entry.get(name) for entry in entries] for name in names}
    index = Index(samples.step, samples.timestamp, samples.name, left_out, columns)
    return encode_member(index, len(lines), b"".join(lines))


def _json(row: dict[str, Any]) -> bytes:
    """A JSON line; what JSON has no number for is null, so that every reader takes it."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(row), ensure_ascii=False)
    except TypeError:
        text = json.dumps(_finite(row), ensure_ascii=False, skipkeys=True, default=repr)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _finite(value: Any) -> Any:  # noqa: ANN401 - plain data
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is dict:
        return {str(key): _finite(one) for key, one in value.items()}
    if type(value) is list:
        return [_finite(one) for one in value]
    return value


def _whole_members(content: FileContent) -> Iterator[tuple[int, MemberHead]]:
    """Offset and header of each member before the first that is torn or damaged."""
    at = 0
    for _ in count():
        head = member_head(content.at(at, HEAD_BYTES))
        if head is None or at + head.size > content.size or not is_whole(content.at(at, head.size)):
            return
        yield at, head
        at += head.size
