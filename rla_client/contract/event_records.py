"""The records of a TensorBoard event file.

A record is `length u64 | masked CRC32C of length | data | masked CRC32C of data`, its data one Event
(protobuf): field 1 is its wall time (double), field 2 its step (varint). Only these two are read here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator

import crc32c

FRAME_HEAD_BYTES = 12  # length and its CRC
MASK_DELTA = 0xA282EAD8
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_DOUBLE = struct.Struct("<d")


def masked_crc(data: bytes) -> int:
    """CRC32C as TensorFlow records store it."""
    crc: int = crc32c.crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def whole_records_of(chunks: Iterable[bytes]) -> int:
    """`whole_records` of a content in pieces that end anywhere."""
    return sum(map(len, _whole_parts(chunks)))


def _whole_parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The complete, valid records at the beginning of such a content, some at a time."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        whole = whole_records(rest)
        yield rest[:whole]
        rest = rest[whole:]
        if len(rest) >= FRAME_HEAD_BYTES and (
            _U32.unpack_from(rest, 8)[0] != masked_crc(rest[:8])
            or FRAME_HEAD_BYTES + _U64.unpack_from(rest)[0] + 4 <= len(rest)
        ):
            return


def whole_records(data: bytes) -> int:
    """Number of bytes of `data` that are complete, valid records."""
    at = 0
    while at + 12 <= len(data):
        length = _U64.unpack_from(data, at)[0]
        end = at + 12 + length + 4
        if _U32.unpack_from(data, at + 8)[0] != masked_crc(data[at : at + 8]) or end > len(data):
            break
        if _U32.unpack_from(data, end - 4)[0] != masked_crc(data[at + 12 : end - 4]):
            break
        at = end
    return at


def records_until(chunks: Iterable[bytes], time_step: float, moment: float = -math.inf) -> int | None:
    """Bytes before the first later event; None without one before the first damaged record.

    Args:
        chunks: a content in pieces of any length.
        time_step: an event is later if its step is above this, and
        moment: its wall time is after this (Unix seconds).
    """
    total = 0
    for records in _whole_parts(chunks):
        at = 0
        while at < len(records):
            end = at + FRAME_HEAD_BYTES + _U64.unpack_from(records, at)[0] + 4
            wall_time, step = _placed(records, at + FRAME_HEAD_BYTES, end - 4)
            if step > time_step and wall_time > moment:
                return total + at
            at = end
        total += len(records)
    return None


def _placed(data: bytes, at: int, end: int) -> tuple[float, int]:
    """Wall time and step of an Event; by default now and 0."""
    wall_time = math.inf
    if data[at : at + 1] == b"\x09" and at + 9 <= end:
        wall_time = _DOUBLE.unpack_from(data, at + 1)[0]
        at += 1 + _DOUBLE.size
    if data[at : at + 1] != b"\x10":
        return wall_time, 0
    value = shift = 0
    for byte in data[at + 1 : end]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004
            break
    return wall_time, value - (1 << 64) if value >= 1 << 63 else value
