"""Decoder of segment bytes into records. Pure.

`parse` takes bytes of a segment at a known offset and returns a `Batch`: the records in them, the offset up
to which they were consumed, and the number of bytes without a frame. An incomplete frame at the end is left
for the next call, or is damage with `final`, when no more bytes will come. After damage the next frame is
searched by magic and CRC. For any input the outcome is a Batch or UnknownVersionError, nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from rla_agent.model.records import (
    Batch,
    Close,
    Event,
    ItemFile,
    JobRequest,
    Mark,
    OpeningFrame,
    Record,
    RecordContent,
    Row,
    Samples,
    Text,
)
from rla_client.contract.errors import RemoteProtocolError, UnknownVersionError
from rla_client.contract.spool.protocol import (
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    MAX_FRAME_BYTES,
    MAX_KEYS_PER_ROW,
    OLDEST_VERSION,
    PROTOCOL_VERSION,
    FrameKind,
    find_frame,
    unpack,
)

MAX_NESTING = 64  # containers inside one another; far above clients', below Python's limits
MAX_SAMPLES_NAME = 200  # characters; a client's texts are shorter
SAFE_BYTES = 256  # a record this short cannot be nested too deeply for Python
_CONTAINERS = frozenset((list, dict))
_ROW = int(FrameKind.ROW)
_NUMBERS = frozenset((int, float))
Unpacked: TypeAlias = Any  # the decoded payload: foreign data, checked here


def parse(data: bytes, number: int, start: int, *, final: bool) -> Batch:
    """Decode the frames in `data`.

    Args:
        data: bytes of segment `number` from offset `start`.
        number: for the Batch.
        start: where `data` begins in the segment.
        final: no bytes will ever follow.

    Raises:
        UnknownVersionError: a frame that only a later release can read; the data before it are
            in no Batch, so parse these first.
    """
    records: list[Record] = []
    damaged = others = 0
    at, size = 0, len(data)
    unpack_header, crc32, add, new = FRAME_HEADER.unpack_from, zlib.crc32, records.append, tuple.__new__
    while at < size:
        waits = False  # whether the bytes from `at` may be the begin of a frame
        if size - at >= FRAME_HEADER_BYTES:
            magic, version, kind, length, crc = unpack_header(data, at)
            if magic == FRAME_MAGIC and length <= MAX_FRAME_BYTES:
                begin = at + FRAME_HEADER_BYTES
                end = begin + length
                waits = end > size
                payload = data[begin:end]
                seed = (kind << 24) ^ ((version - 1 & 0xFF) << 16) ^ length
                if not waits and crc32(payload, seed) == crc:
                    if not OLDEST_VERSION <= version <= PROTOCOL_VERSION:
                        if records or damaged:
                            break  # hand over what is before; the next call stops here at once
                        raise UnknownVersionError(
                            f"frame version {version}; this agent reads up to {PROTOCOL_VERSION}"
                        )
                    content = _decode_row(payload) if kind == _ROW else decode(kind, payload)
                    if content is None:
                        damaged += end - at
                    else:
                        others += kind != _ROW
                        add(new(Record, (start + end, content)))
                    at = end
                    continue
        else:
            waits = FRAME_MAGIC.startswith(data[at : at + 2])
        if waits and not final:
            break  # bytes inside may look like a frame, and be the content of this one
        after = find_frame(data, at + 1)
        if after == size and not final:
            after = _next_begin(data, at + 1)
        damaged += after - at
        at = after
    return Batch(number, start, start + at, records, damaged, others == 0)


def _next_begin(data: bytes, start: int) -> int:
    """Where a frame that is not complete yet may begin."""
    found = data.find(FRAME_MAGIC, start)
    if found >= 0:
        return found
    return len(data) - (data[-1:] == FRAME_MAGIC[:1] and len(data) > start)


def decode(kind: int, payload: bytes) -> RecordContent | None:
    """Decode a payload; None when it is invalid in this version."""
    try:
        decoder = _DECODERS.get(kind)
        if decoder is None:
            return None
        raw = unpack(payload)
        return None if too_deep(raw) else decoder(raw)
    except (RemoteProtocolError, TypeError, ValueError, KeyError, IndexError, OverflowError):
        return None


def too_deep(value: object) -> bool:
    """Whether plain data is nested deeper than MAX_NESTING: packing or printing it would fail."""
    level = [value]
    for _ in range(MAX_NESTING):
        inner: list[object] = []
        for one in level:
            if type(one) is list:
                inner += one
            elif type(one) is dict:
                inner += one.values()
        if not inner:
            return False
        level = inner
    return any(type(one) in _CONTAINERS for one in level)


def _decode_row(payload: bytes) -> Row | None:
    """`decode` of a ROW frame; almost all frames are one, so the usual row takes the shortest way."""
    try:
        raw = unpack(payload)
        if type(raw) is list and len(raw) == 3:  # noqa: PLR2004 - [step, timestamp, values]
            step, timestamp, values = raw
            numbers = type(step) in _NUMBERS and type(timestamp) is float
            if numbers and type(values) is dict and len(values) <= MAX_KEYS_PER_ROW:
                "".join(values)  # raises TypeError unless every key is text
                if len(payload) <= SAFE_BYTES or _CONTAINERS.isdisjoint(map(type, values.values())):
                    # what Row(…) does, in half the time
                    return tuple.__new__(Row, (step, timestamp, values, None))
        return None if too_deep(raw) else _row(raw)
    except (RemoteProtocolError, TypeError, ValueError, KeyError, IndexError):
        return None


def _row(raw: Unpacked) -> Row | None:
    if len(raw) == 3:  # noqa: PLR2004 - [step, timestamp, values]
        step, timestamp, values = raw
        excluded = None
    else:
        step, timestamp, values, excluded = raw
        if not isinstance(excluded, dict) or not all(type(names) is list for names in excluded.values()):
            return None
    if not isinstance(step, (int, float)) or type(timestamp) is not float or type(values) is not dict:
        return None
    "".join(values)  # raises TypeError unless every key is text
    if len(values) > MAX_KEYS_PER_ROW:
        return None
    return Row(step, timestamp, values, excluded)


def _text(raw: Unpacked) -> Text:
    targets, text = raw
    return Text(int(targets), str(text))


def _event(raw: Unpacked) -> Event:
    return Event(bytes(raw[0]) if isinstance(raw[0], bytes) else _refuse())


def _file(raw: Unpacked) -> ItemFile:
    kind, path, content = raw
    return ItemFile(str(kind), str(path), content if isinstance(content, bytes) else _refuse())


def _close(raw: Unpacked) -> Close:
    state, reason, timestamp = raw
    return Close(str(state), str(reason), float(timestamp))


def _mark(raw: Unpacked) -> Mark:
    name, data = raw
    return Mark(str(name), data)


def _job(raw: Unpacked) -> JobRequest:
    kind, fields = raw
    return JobRequest(str(kind), fields if isinstance(fields, dict) else _refuse())


def _samples(raw: Unpacked) -> Samples:
    name, step, timestamp, left_out, packed = raw
    if type(step) not in _NUMBERS or type(left_out) is not int or type(packed) is not list:
        _refuse()
    rows = [unpack(row) if type(row) is bytes else _refuse() for row in packed]
    for row in rows:
        if type(row) is not dict or len(row) > MAX_KEYS_PER_ROW or too_deep(row):
            _refuse()
        "".join(row)  # raises TypeError unless every key is text
    return Samples(str(name)[:MAX_SAMPLES_NAME], step, float(timestamp), max(left_out, 0), rows)


def _opening(raw: object) -> OpeningFrame:
    return OpeningFrame(raw if isinstance(raw, dict) else _refuse())


def _refuse() -> NoReturn:
    raise TypeError("wrong type")


_DECODERS: dict[int, Callable[[Any], RecordContent | None]] = {
    FrameKind.OPEN: _opening,
    FrameKind.ROW: _row,
    FrameKind.TEXT: _text,
    FrameKind.EVENT: _event,
    FrameKind.FILE: _file,
    FrameKind.CLOSE: _close,
    FrameKind.MARK: _mark,
    FrameKind.JOB: _job,
    FrameKind.SAMPLES: _samples,
}
