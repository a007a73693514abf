"""Opcodes of a pickle, written by hand.

Only those are used that `torch.load(weights_only=True)` reads; POP is not among them, so a name is defined
where it is first needed.
"""

from __future__ import annotations

import pickle
import struct
from functools import lru_cache

PICKLE_PROTOCOL = 2
REBUILD, STORAGE, CPU, ORDERED, PARAMETER, FROM_TYPE, TENSOR, REBUILD_NEW = range(200, 208)
_INT32 = 1 << 31


class Unusual(Exception):  # noqa: N818 - a turn in the road, not an error
    """The content holds something that only the general pickler can write."""


def text_op(data: bytes) -> bytes:
    """BINUNICODE of UTF-8 bytes."""
    return struct.pack("<cI", b"X", len(data)) + data


@lru_cache(maxsize=1 << 15)
def key_op(key: str) -> bytes:
    """BINUNICODE of a dict key; the same ones come with every checkpoint."""
    return text_op(key.encode("utf-8", "surrogatepass"))


def int_op(value: int) -> bytes:
    """The shortest opcode for an integer."""
    if 0 <= value < 256:  # noqa: PLR2004 - one byte
        return b"K%c" % value
    if -_INT32 <= value < _INT32:
        return struct.pack("<ci", b"J", value)
    data = pickle.encode_long(value)
    if len(data) > 255:  # noqa: PLR2004 - LONG4, which weights_only does not read
        raise Unusual("integer")
    return b"\x8a%c" % len(data) + data


@lru_cache(maxsize=1 << 15)
def geometry_ops(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """Offset, shape and strides of a tensor; models repeat a few of them."""
    return b"%b(%bt(%bt" % (int_op(offset), b"".join(map(int_op, shape)), b"".join(map(int_op, strides)))


@lru_cache(maxsize=1 << 15)
def storage_ops(kind: int, key: int, count: int) -> bytes:
    """`_rebuild_tensor_v2((` persistent id of a storage, all names defined before."""
    return b"h%c((h%ch%c%bh%c%btQ" % (REBUILD, STORAGE, kind, text_op(b"%d" % key), CPU, int_op(count))
