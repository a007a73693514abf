r"""Wire protocol of client with agent. Pure.

A *frame* is one record of a stream::

    offset  size  field
    0       2     magic      b"\xf5R"
    2       1     version    PROTOCOL_VERSION
    3       1     kind       FrameKind
    4       4     length     bytes of payload, little endian
    8       4     crc        CRC-32 of payload, seeded with (kind << 24) ^ ((version - 1) << 16) ^ length
    12      n     payload    msgpack

A segment file is frames and nothing else. Its first frame is OPEN, so each segment can be read
without the ones before it. A *message* on the ZeroMQ socket is one part::

    0       2     magic      b"\xf5M"
    2       1     version
    3       1     kind       MessageKind
    4       4     length     bytes of header, little endian
    8       n     header     msgpack, a map; what follows it is passed over

Nothing is decoded before magic, version, length and CRC have been checked, and nothing is
larger than the limits below.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgpack

from rla_client.contract.errors import (
    ArgumentError,
    FrameTooLargeError,
    RemoteProtocolError,
    UnknownVersionError,
)

PROTOCOL_VERSION = 1  # that this release writes
OLDEST_VERSION = 1  # that it still reads; a format that changes gets a decoder for each version here
FRAME_MAGIC = b"\xf5R"
MESSAGE_MAGIC = b"\xf5M"
FRAME_HEADER = struct.Struct("<2sBBII")
FRAME_HEADER_BYTES = FRAME_HEADER.size
MESSAGE_HEADER = struct.Struct("<2sBBI")

ALERT_MARK = "alert"  # name of a mark whose data are `title`, `text` and `time_step`
MAX_FRAME_BYTES = 16 << 20  # a 4k x 4k RGBA picture in an event; larger things travel as blobs
MAX_MESSAGE_BYTES = 1 << 20  # to the agent; a question to fetch names paths, everything else has a line
SEGMENT_MAX_BYTES = 8 << 20  # small enough to be freed soon, large enough to be rolled rarely
MAX_KEYS_PER_ROW = 65536  # a histogram per layer of a large net is far below
MAX_CONTAINER_ITEMS = 1 << 20  # before decode; 16 MiB of empty maps would take a gigabyte
MAX_HEADER_BYTES = 4096  # of a message
MAX_KEPT_PACKERS, MAX_KEPT_BUFFER = 4, 1 << 20

_SEED = (PROTOCOL_VERSION - 1 & 0xFF) << 16
_SHORT_EVENT = tuple(bytes((0x91, 0xC4, size)) for size in range(256))  # msgpack: an array of one bin8
_packers: list[msgpack.Packer] = []  # those that nobody uses at the moment
BIG_INT_EXT = 1  # integers beyond 64 bit, as decimal text


REPLICATE_NOW = "replicate_now"  # a MARK: send this item to the master at once
HANDED_OVER = "handed over"  # a CLOSE: another stream of the same run continues


class FrameKind(IntEnum):
    """Kind of a frame's content. Numbers are on disk: never reuse one."""

    OPEN = 1  # who writes, where to: see `opening`
    ROW = 2  # [time_step, timestamp, {key: value}] or [..., {key: [sink, ...]}]
    TEXT = 3  # [targets, text]
    EVENT = 4  # [serialised TensorBoard Event]
    FILE = 5  # [kind, relative path, content]: a small whole file of the item
    CLOSE = 6  # [state, reason, timestamp]: the writer says that it is done
    MARK = 7  # [name, data]: things the run registry keeps (see rla_agent/pipeline/run_registry.py)
    JOB = 8  # [job kind, {…}]: starts work (figure, video, checkpoint)
    SAMPLES = 9  # [name, time_step, timestamp, left out, [packed row, ...]]: see rla_client/samples


class MessageKind(IntEnum):
    """Kind of a message."""

    HINT = 1  # client → agent: where a stream ends now
    FLUSH = 2  # client → agent: answer when committed
    FLUSHED = 3  # agent → client
    STATUS = 4  # → agent, on the control socket
    REPLY = 5  # agent → , on the control socket


class TextTarget:
    """Bits of a TEXT frame: which files get the text."""

    LOG = 1
    WARN = 2
    BACKUP = 4
    CONSOLE = 8


@dataclass(frozen=True, slots=True)
class Frame:
    """One decoded frame and the offset of the byte after it."""

    kind: int
    payload: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes `start`…`end` of a segment without a frame."""

    start: int
    end: int


def encode_frame(kind: int, payload: bytes) -> bytes:
    """Build one frame.

    Raises:
        FrameTooLargeError: payload is larger than MAX_FRAME_BYTES.
    """
    size = len(payload)
    if size > MAX_FRAME_BYTES:
        raise FrameTooLargeError(f"a record of {size} bytes is over the limit of {MAX_FRAME_BYTES} bytes")
    crc = zlib.crc32(payload, (kind << 24) ^ _SEED ^ size)
    return FRAME_HEADER.pack(FRAME_MAGIC, PROTOCOL_VERSION, kind, size, crc) + payload


def frame_at(data: bytes | memoryview, start: int) -> Frame | Damage | None:
    """Read the frame at `start`; None while it is incomplete, Damage when it is none.

    A Damage returned here covers one byte; `find_frame` says where the next frame begins.

    Raises:
        UnknownVersionError: a whole frame of a version that this release does not read.
    """
    if len(data) - start < FRAME_HEADER_BYTES:
        head = bytes(data[start : start + 2])
        if head == FRAME_MAGIC[: len(head)]:
            return None
        return Damage(start, start + 1)
    magic, version, kind, size, crc = FRAME_HEADER.unpack_from(data, start)
    if magic != FRAME_MAGIC or size > MAX_FRAME_BYTES:
        return Damage(start, start + 1)
    begin = start + FRAME_HEADER_BYTES
    end = begin + size
    if end > len(data):
        return None
    payload = bytes(data[begin:end])
    if zlib.crc32(payload, (kind << 24) ^ ((version - 1 & 0xFF) << 16) ^ size) != crc:
        return Damage(start, start + 1)
    if not OLDEST_VERSION <= version <= PROTOCOL_VERSION:
        raise UnknownVersionError(f"frame version {version}, this release reads up to {PROTOCOL_VERSION}")
    return Frame(kind, payload, end)


def find_frame(data: bytes, start: int) -> int:
    """Offset of the next whole frame that this release reads, at or after `start`; len(data) if none."""
    at = data.find(FRAME_MAGIC, start)
    while at >= 0:
        try:
            if isinstance(frame_at(data, at), Frame):
                return at
        except UnknownVersionError:
            pass  # inside damage, two bytes of magic prove nothing
        at = data.find(FRAME_MAGIC, at + 1)
    return len(data)


def iter_frames(data: bytes) -> Iterator[Frame]:
    """Yield the frames up to the first incomplete or damaged one."""
    at = 0
    while True:
        found = frame_at(data, at)
        if not isinstance(found, Frame):
            return
        yield found
        at = found.end


def pack(value: object) -> bytes:
    """Serialise plain data (None, bool, int, float, text, bytes, list, dict).

    `msgpack.packb` allocates a megabyte for each call. In a training process the allocator gives that back
    to the system in between, and a call takes 130 to 250 us instead of 5.
    """
    try:
        packer = _packers.pop()
    except IndexError:  # the first call, or another thread or a signal handler is packing
        packer = msgpack.Packer(default=_pack_big)
    data: bytes = packer.pack(value)
    if len(data) <= MAX_KEPT_BUFFER and len(_packers) < MAX_KEPT_PACKERS:
        _packers.append(packer)
    return data


def event_payload(event: bytes) -> bytes:
    """The payload of an EVENT frame: `pack([event])`."""
    size = len(event)
    return _SHORT_EVENT[size] + event if size < len(_SHORT_EVENT) else pack([event])


def _pack_big(value: object) -> object:
    if isinstance(value, int):
        return msgpack.ExtType(BIG_INT_EXT, _digits(value))
    raise TypeError(f"{type(value).__name__} is not plain data")


def _digits(value: int) -> bytes:
    try:
        return str(value).encode()
    except ValueError as error:  # longer than Python writes, or reads back
        raise ArgumentError(f"an integer of {value.bit_length()} bits is too long to be kept") from error


def unpack(data: bytes) -> Any:  # noqa: ANN401 - plain data of any shape
    """Read plain data back.

    Raises:
        RemoteProtocolError: not msgpack, too many items, or an unknown extension.
    """
    try:
        if len(data) <= MAX_CONTAINER_ITEMS:  # an item takes a byte at least, so the limits hold
            return msgpack.unpackb(data, strict_map_key=False, ext_hook=_unpack_ext)
        return msgpack.unpackb(
            data,
            strict_map_key=False,
            ext_hook=_unpack_ext,
            max_array_len=MAX_CONTAINER_ITEMS,
            max_map_len=MAX_CONTAINER_ITEMS,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"payload is not what a client writes: {error}") from error


def _unpack_ext(code: int, data: bytes) -> int:
    if code != BIG_INT_EXT or len(data) > MAX_HEADER_BYTES:
        raise ValueError(f"unknown extension {code}")
    return int(data)


def encode_message(kind: int, header: dict[str, Any], version: int | None = None) -> bytes:
    """Build one message; in an older `version` for a peer that speaks that one."""
    packed = pack(header)
    version = PROTOCOL_VERSION if version is None else version
    return MESSAGE_HEADER.pack(MESSAGE_MAGIC, version, kind, len(packed)) + packed


def message_version(data: bytes) -> int:
    """Version of a message that `decode_message` has accepted."""
    return data[len(MESSAGE_MAGIC)]


def decode_message(data: bytes) -> tuple[int, dict[str, Any]]:
    """Kind and header of a message.

    Raises:
        RemoteProtocolError: it is not one of ours (a garbage connection, another protocol).
        UnknownVersionError: it is one, of a version that this release does not read.
    """
    if len(data) < MESSAGE_HEADER.size:
        raise RemoteProtocolError("short message")
    magic, version, kind, size = MESSAGE_HEADER.unpack_from(data)
    if magic != MESSAGE_MAGIC:
        raise RemoteProtocolError("not a message of ours")
    if not OLDEST_VERSION <= version <= PROTOCOL_VERSION:
        raise UnknownVersionError(f"message version {version}, this release reads up to {PROTOCOL_VERSION}")
    begin = MESSAGE_HEADER.size
    if size > len(data) - begin:
        raise RemoteProtocolError("message header is cut short")
    header = unpack(data[begin : begin + size])
    if not isinstance(header, dict):
        raise RemoteProtocolError("message header is not a map")
    return kind, header
