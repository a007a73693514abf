"""Encoding of samples as members of a samples file. Pure.

One JSON object a line; what can be sorted and filtered also in the index of its member (`sample_members`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rla_client.contract.sample_members import (
    HEAD_CHARS,
    MEMBER_INDEX_BYTES,
    MEMBER_ROWS,
    MEMBER_TEXT_BYTES,
    Index,
    encode_member,
    group_of,
)
from rla_client.contract.spool.protocol import pack

OWN_COLUMNS: Final = ("id", "step", "timestamp", "name", "role")  # of each row, added by its writer
MAX_COLUMNS = 200  # of one row in the index; all of it is in the JSON lines
MAX_COLUMN_CHARS = 100
MEASURED = frozenset({"prompt", "completion"})  # texts that people filter by length
FIRST_COLUMNS = frozenset(("id", "group", "reward", "prompt", "completion"))  # where not all have room
CELL_BYTES = 16  # of a packed number, or around a text
REWARDS = "rewards"  # {name: number}, a column each


class SampledAt(NamedTuple):
    """What the samples of one call have in common.

    Attributes:
        name: that they were logged under.
        role: label of the stream.
        step: time-step.
        timestamp: Unix seconds.
        left_out: rows of the call that the limits left out.
    """

    name: str
    role: str
    step: int | float
    timestamp: float
    left_out: int = 0


def encode_samples(rows: Sequence[Mapping[str, Any]], at: SampledAt, first: int) -> Iterator[bytes]:
    """Members with some samples; an empty one where all were left out.

    Args:
        rows: plain data by key.
        at: what they have in common.
        first: number of the first of them in its file.
    """
    lines: list[bytes] = []
    entries: list[dict[str, Any]] = []
    text_bytes = index_bytes = 0
    for number, row in enumerate(rows, first):
        whole = _whole_row(row, at, number)
        line = _json(whole)
        entry = index_entry(whole)
        size = len(pack(entry))
        if lines and (
            len(lines) >= MEMBER_ROWS
            or text_bytes + len(line) > MEMBER_TEXT_BYTES
            or index_bytes + size > MEMBER_INDEX_BYTES
        ):
            yield _member(at, entries, lines)
            lines, entries, text_bytes, index_bytes = [], [], 0, 0
            at = at._replace(left_out=0)
        lines.append(line)
        entries.append(entry)
        text_bytes += len(line)
        index_bytes += size
    if lines or at.left_out:
        yield _member(at, entries, lines)


def _whole_row(row: Mapping[str, Any], at: SampledAt, number: int) -> dict[str, Any]:
    name = f"{at.role}-{number}" if at.role else str(number)
    whole: dict[str, Any] = {"id": name, "step": at.step, "timestamp": at.timestamp}
    whole |= {"name": at.name, "role": at.role}
    for key, value in row.items():
        whole[f"_{key}" if key in OWN_COLUMNS else key] = value
    if whole.get("group") is None and "prompt" in whole:
        whole["group"] = group_of(whole["prompt"])
    elif isinstance(whole.get("group"), list | dict):  # which no filter can name
        whole["group"] = json.dumps(whole["group"], ensure_ascii=False, default=repr)
    return whole


def index_entry(row: dict[str, Any]) -> dict[str, Any]:
    """The part of a row that can be sorted, filtered and listed.

    Numbers and short texts are unchanged. Longer texts (of messages, the last one) are represented by their
    first characters and, as `<key>_chars`, their length; MEASURED columns always have the latter.
    """
    entry: dict[str, Any] = {}
    room = MEMBER_INDEX_BYTES // 2  # of this row, however it is compressed
    for key, value in sorted(_flat(row), key=lambda pair: pair[0] not in FIRST_COLUMNS):
        room -= 2 * (4 * len(key) + CELL_BYTES)
        if len(entry) >= MAX_COLUMNS or room < 0:
            break
        if len(key) > MAX_COLUMN_CHARS or key in {"step", "timestamp", "name", "role"}:
            continue
        kind = type(value)
        if kind is str:
            entry[key] = value[:HEAD_CHARS]
            room -= 4 * len(entry[key])
            if len(value) > HEAD_CHARS or key in MEASURED:
                entry[f"{key}_chars"] = len(value)
        elif kind is int and not -(1 << 63) <= value < 1 << 63:
            entry[key] = float("inf") if value > 0 else float("-inf")
        elif kind in {int, float, bool}:
            entry[key] = value
        elif kind is list and value:
            text = _last_text(value)
            if text is not None:
                entry[key] = text[:HEAD_CHARS]
                room -= 4 * len(entry[key])
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
    """The text of the last of some messages, of a call of a tool alone its name; None where they are none."""
    last = messages[-1]
    content = last.get("content") if isinstance(last, dict) else None
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = " ".join(text for text in texts if isinstance(text, str))
    if not content and isinstance(last, dict) and isinstance(calls := last.get("tool_calls"), list):
        functions = [call.get("function", call) for call in calls if isinstance(call, dict)]
        names = [str(one.get("name")) for one in functions if isinstance(one, dict)]
        content = f"calls {', '.join(names)}" if names else content
    return content if isinstance(content, str) else None


def _member(at: SampledAt, entries: list[dict[str, Any]], lines: list[bytes]) -> bytes:
    names = dict.fromkeys(name for entry in entries for name in entry)
    columns = {name: [entry.get(name) for entry in entries] for name in names}
    index = Index(at.step, at.timestamp, at.name, at.left_out, columns)
    return encode_member(index, len(lines), b"".join(lines))


def _json(row: dict[str, Any]) -> bytes:
    """A JSON line; numbers that JSON does not have are null, so that every reader accepts it."""
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
