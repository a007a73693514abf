r"""Gzip members of a samples file. Pure.

`samples.jsonl.gz` is gzip members and nothing else, so zcat, pandas and DuckDB read it as JSON lines. The
header of each member has an extra field, which they skip::

    offset  size  field
    0       10    gzip header: 1f 8b 08 04, no time, 0, 255
    10      2     bytes of the extra field, little endian as all that follows
    12      2     b"RS"
    14      2     bytes of what follows in the extra field
    16      4     bytes of the whole member
    20      4     rows in it
    24      8     time-step, a double
    32      n     zlib of msgpack: the index, see `Index`
    32+n          deflate of the JSON lines, CRC-32, length

A reader goes from header to header without decompressing a row; a torn member is recognized by its length, a
damaged one by its CRC.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.spool.protocol import pack, unpack

MEMBER_ROWS = 1024  # a member is decompressed as a whole to show one row of it
MEMBER_TEXT_BYTES = 1 << 20
MEMBER_INDEX_BYTES = 56 << 10  # before compression: an extra field has 65,535 bytes, and zlib may add a few
MAX_MEMBER_BYTES = 1 << 28
HEAD_BYTES = 32
HEAD_CHARS = 80  # of a text, in the index
GROUP_BYTES = 6
_HEAD = struct.Struct("<10sH2sHIId")
_MAGIC = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff"
_FIELD = b"RS"
_TAIL = struct.Struct("<II")
_FIELD_HEAD = HEAD_BYTES - 16  # bytes of the field before the index


class Index(NamedTuple):
    """The properties of a member that can be read without decompressing its rows.

    Attributes:
        step: time-step of all its rows.
        timestamp: Unix seconds.
        name: that the samples were logged under.
        left_out: rows of the same call that the limits left out; in the first member of a call.
        columns: name to one value per row: numbers, short texts, first characters of long ones.
    """

    step: int | float
    timestamp: float
    name: str
    left_out: int
    columns: dict[str, list[Any]]


class MemberHead(NamedTuple):
    """The fixed part of a member's header."""

    size: int
    rows: int
    step: float
    index_bytes: int


def encode_member(index: Index, rows: int, lines: bytes) -> bytes:
    """A member of `rows` JSON lines."""
    packed = zlib.compress(pack(list(index)), 1)
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(lines) + deflate.flush()
    field = _FIELD_HEAD + len(packed)
    size = HEAD_BYTES + len(packed) + len(body) + _TAIL.size
    try:
        step = float(index.step)
    except OverflowError:
        step = float("inf")
    head = _HEAD.pack(_MAGIC, field + 4, _FIELD, field, size, rows, step)
    return b"".join((head, packed, body, _TAIL.pack(zlib.crc32(lines), len(lines) & 0xFFFFFFFF)))


def member_head(data: bytes, at: int = 0) -> MemberHead | None:
    """The header of the member that begins at an offset; None where none of ours begins."""
    if len(data) - at < HEAD_BYTES:
        return None
    magic, extra, field, length, size, rows, step = _HEAD.unpack_from(data, at)
    if magic != _MAGIC or field != _FIELD or extra != length + 4 or length < _FIELD_HEAD:
        return None
    index_bytes = length - _FIELD_HEAD
    if not HEAD_BYTES + index_bytes + _TAIL.size < size <= MAX_MEMBER_BYTES:
        return None
    return MemberHead(size, rows, step, index_bytes)


def read_index(data: bytes, head: MemberHead) -> Index:
    """The index of a member.

    Args:
        data: at least the first HEAD_BYTES + `head.index_bytes` bytes of the member.
        head: its header.

    Raises:
        RemoteProtocolError: it is not what an agent writes.
    """
    try:
        packed = data[HEAD_BYTES : HEAD_BYTES + head.index_bytes]
        inflate = zlib.decompressobj()
        raw = inflate.decompress(packed, 1 << 20)
        step, timestamp, name, left_out, columns = unpack(raw)
        index = Index(step, float(timestamp), str(name), int(left_out), columns)
        if not isinstance(step, int | float) or any(len(column) != head.rows for column in columns.values()):
            raise ValueError("columns of different lengths")  # noqa: TRY301 - one way out
    except (zlib.error, ValueError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(f"index of samples is damaged: {error}") from error
    return index


def read_lines(member: bytes, head: MemberHead) -> bytes:
    """The JSON lines of a whole member.

    Raises:
        RemoteProtocolError: it is damaged.
    """
    try:
        begin, end = HEAD_BYTES + head.index_bytes, head.size - _TAIL.size
        lines = zlib.decompress(member[begin:end], -zlib.MAX_WBITS)
        crc, length = _TAIL.unpack_from(member, end)
    except (zlib.error, struct.error) as error:
        raise RemoteProtocolError(f"samples are damaged: {error}") from error
    if zlib.crc32(lines) != crc or len(lines) & 0xFFFFFFFF != length:
        raise RemoteProtocolError("samples are damaged: their checksum is wrong")
    return lines


def is_whole(member: bytes) -> bool:
    """Whether these bytes are a member, undamaged."""
    head = member_head(member)
    if head is None or head.size != len(member):
        return False
    try:
        read_index(member, head)
        read_lines(member, head)
    except RemoteProtocolError:
        return False
    return True


def member_ends(data: bytes) -> Iterator[int]:
    """Positions behind each member, by the lengths alone."""
    at = 0
    while (head := member_head(data, at)) is not None and at + head.size <= len(data):
        at += head.size
        yield at


def group_of(prompt: object) -> str:
    """Identifier of the samples of one prompt, the same in every process.

    Args:
        prompt: text or plain data.
    """
    data = prompt.encode("utf-8", "backslashreplace") if isinstance(prompt, str) else pack(prompt)
    return hashlib.blake2b(data, digest_size=GROUP_BYTES).hexdigest()
