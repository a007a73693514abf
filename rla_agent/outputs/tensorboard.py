"""Encoder of TensorBoard event files.

Each row is one Event, framed as a TensorFlow record (`contract.event_records`). The protobuf of a row is
assembled from prefixes that are cached per set of keys; a test compares it with the bytes of tensorboardX's
own messages. Steps are integers and values float32, as TensorBoard defines them; text and arrays are left
out.
"""

from __future__ import annotations

import pprint
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import crc32c

from rla_agent.model.records import Event, Mark, Record, Row
from rla_agent.outputs.encoder import Encoder, WholePart, values_for
from rla_agent.outputs.file_content import FileContent
from rla_client.contract.event_records import FRAME_HEAD_BYTES, MASK_DELTA, masked_crc, whole_records_of
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.contract.spool.opening import Opening
from rla_client.contract.text.number_parsing import INT64

SINK = "tensorboard"
HYPER_PARAM_MARK = "hyper_param"
HYPER_PARAM_TAG = "hyperparameters/text_summary"
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_FRAME_BYTES = 16  # all bytes around the data of one record
MAX_EVENT_BYTES = 1 << 30  # a longer one is damage, not a record
_CACHED_KEY_SETS = 64  # rows of one run alternate between few sets of keys
_VARINT_1, _VARINT_2, _VARINT_3 = 1 << 7, 1 << 14, 1 << 21  # beyond what so many bytes hold
_Template: TypeAlias = tuple[list[Any], Callable[..., bytes]]


class EventEncoder(Encoder):
    """Encodes rows, client events and hyper-parameters.

    Args:
        opened: wall time of the file's version record, Unix seconds.
    """

    def __init__(self, opened: float) -> None:
        super().__init__()
        self._opened = opened
        self._templates: dict[tuple[int | str, ...], _Template] = {}
        self._heads: dict[int, bytes] = {}

    def head(self) -> bytes:
        """The version record that TensorBoard wants first."""
        return b"".join(self._framed(b"\x09" + _DOUBLE.pack(self._opened) + _field(3, b"brain.Event:2")))

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """See Encoder."""
        parts: list[bytes] = []
        for _end, content in records:
            kind = type(content)
            if kind is Row:
                self.rows += 1
                parts += self._row_record(content)  # type: ignore[arg-type]
            elif kind is Event:
                parts += self._framed(content.data)  # type: ignore[union-attr]
            elif kind is Mark and content.name == HYPER_PARAM_MARK:  # type: ignore[union-attr]
                parts += self._framed(hyper_param_event(content.data, self._opened))  # type: ignore[union-attr]
        return b"".join(parts), len(records)

    def _row_record(self, row: Row) -> tuple[bytes, ...]:
        """The record of a row, in pieces; none when nothing of it is for this sink."""
        values = row.values
        if row.excluded:
            values = values_for(row, SINK)
            if not values:
                return ()
        step, timestamp = row[:2]
        values = {**values, TIME_STEP: step, TIMESTAMP: timestamp}
        number = _varint(whole_step(step))
        template = self._templates.get((len(number), *values))
        if template is None:
            template = self._new_template(len(number), tuple(values))
        parts, pack = template
        filled = parts.copy()
        filled[1] = timestamp
        filled[2] = b"\x10" + number
        filled[4::2] = values.values()
        try:
            record = pack(*filled)
        except (struct.error, OverflowError, TypeError):
            summary = _field(
                5,
                b"".join(
                    _value_prefix(str(key)) + _float32(value)
                    for key, value in values.items()
                    if isinstance(value, (int, float))
                ),
            )
            return self._framed(b"\x09" + _DOUBLE.pack(timestamp) + b"\x10" + number + summary)
        crc: int = crc32c.crc32c(record[FRAME_HEAD_BYTES:])
        return record, _U32.pack(((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF)

    def _new_template(self, step_bytes: int, keys: tuple[str, ...]) -> _Template:
        """The constant parts of records with these keys and a step of that length.

        Returns:
            Constant pieces with gaps for wall time, step and values in turn, with their packer.
        """
        if len(self._templates) >= _CACHED_KEY_SETS:
            self._templates.clear()
        prefixes = [_value_prefix(str(key)) for key in keys]
        summary = _varint(5 << 3 | 2) + _varint(sum(map(len, prefixes)) + 4 * len(prefixes))
        prefixes[0] = summary + prefixes[0]  # a row has a key at least: its timestamp
        event = 1 + _DOUBLE.size + 1 + step_bytes + sum(map(len, prefixes)) + 4 * len(prefixes)
        parts: list[Any] = [self._frame_head(event) + b"\x09", 0.0, b""]
        form = [f"<{FRAME_HEAD_BYTES + 1}sd{1 + step_bytes}s"]
        for prefix in prefixes:
            parts += [prefix, 0.0]
            form.append(f"{len(prefix)}sf")
        template = (parts, struct.Struct("".join(form)).pack)
        known: tuple[int | str, ...] = (step_bytes, *keys)
        self._templates[known] = template
        return template

    def _frame_head(self, size: int) -> bytes:
        """The first bytes of a record of `size` bytes of data."""
        head = self._heads.get(size)
        if head is None:
            if len(self._heads) > 4096:  # noqa: PLR2004 - events of a run have few sizes
                self._heads.clear()
            length = _U64.pack(size)
            head = self._heads[size] = length + _U32.pack(masked_crc(length))
        return head

    def _framed(self, data: bytes) -> tuple[bytes, ...]:
        """A record, in pieces."""
        return self._frame_head(len(data)), data, _U32.pack(masked_crc(data))

    @staticmethod
    def ends(data: bytes) -> list[int]:
        """See Encoder; by the lengths alone, as it is asked of what this agent wrote."""
        ends = []
        at = 0
        while at + _FRAME_BYTES <= len(data):
            (size,) = _U64.unpack_from(data, at)
            if size > MAX_EVENT_BYTES or at + _FRAME_BYTES + size > len(data):
                break
            at += _FRAME_BYTES + size
            ends.append(at)
        return ends

    def end_of_records(self, content: FileContent) -> int:
        """See Encoder."""
        return whole_records_of(content.chunks())

    def whole_part(self, content: FileContent) -> WholePart:
        """See Encoder. All is `kept`: each stream has its own file; `pipeline.recovery` cuts earlier ones."""
        return WholePart(whole_records_of(content.chunks()), b"", {})


def whole_step(step: float) -> int:
    """A time-step as the int64 that an Event holds."""
    if type(step) is int and -INT64 <= step < INT64:
        return step
    try:
        return max(-INT64, min(INT64 - 1, int(step)))
    except (ValueError, OverflowError):  # NaN or an infinity
        return 0


def hyper_param_event(hyper_param: object, wall_time: float) -> bytes:
    """An Event with hyper-parameters as text, as tensorboardX's `add_text` makes it."""
    text = pprint.pformat(hyper_param, indent=4).encode("utf-8", "backslashreplace")
    tensor = b"\x08\x07" + _field(2, _field(2, b"\x08\x01")) + _field(8, text)
    metadata = _field(1, _field(1, b"text"))
    value = _field(1, HYPER_PARAM_TAG.encode()) + _field(8, tensor) + _field(9, metadata)
    return b"\x09" + _DOUBLE.pack(wall_time) + _field(5, _field(1, value))


def _float32(value: float) -> bytes:
    try:
        return _FLOAT.pack(value)
    except (OverflowError, struct.error):  # the second for a whole number beyond a double
        return _FLOAT.pack(float("inf") if value > 0 else float("-inf"))


def _value_prefix(tag: str) -> bytes:
    """Everything of one Summary.Value before its four bytes of float32."""
    name = _field(1, tag.encode("utf-8", "backslashreplace")) + b"\x15"
    return b"\x0a" + _varint(len(name) + 4) + name


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    if 0 <= value < _VARINT_1:  # almost all sizes and steps end here or in the next three lines
        return bytes((value,))
    if 0 < value < _VARINT_2:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0 < value < _VARINT_3:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    value &= 0xFFFFFFFFFFFFFFFF
    parts = bytearray()
    while value >= 0x80:  # noqa: PLR2004
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def event_file_name(opening: Opening, stream: str) -> str:
    """Unique name of a stream's event file, the same after any restart."""
    host = "".join(c if c.isalnum() or c in "-." else "_" for c in opening.host)[:64]
    return f"events.out.tfevents.{int(opening.opened)}.{host}.{opening.pid}.{stream[-8:]}"
