"""Footer of a snapshot file.

It follows the pickle, where `pickle.load` does not read. It consists of a JSON object, its length in bytes
(4, little endian) and the magic `rlaS`. It has the data that are needed without unpickling: `itr`, `rows`,
and `token` and `order` of the save. The later of two saves of one name is the one with the higher order; it
is never replaced by an earlier one.
"""

from __future__ import annotations

import io
import json
import os
import struct
from typing import Any, BinaryIO

FOOTER = struct.Struct("<I4s")
FOOTER_MAGIC = b"rlaS"
FOOTER_MAX_BYTES = 1 << 20  # numbers and short texts only; anything longer is not a footer of ours


def encode_footer(note: dict[str, Any]) -> bytes:
    """Footer of a note, which is plain data."""
    text = json.dumps(note).encode()
    return text + FOOTER.pack(len(text), FOOTER_MAGIC)


def read_footer(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The note behind a snapshot's pickle, without loading the pickle; empty when it has none.

    Raises:
        OSError: the file cannot be read.
    """
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        return _footer(file)


def _footer(file: BinaryIO) -> dict[str, Any]:
    size = file.seek(0, os.SEEK_END)
    if size < FOOTER.size:
        return {}
    file.seek(size - FOOTER.size)
    length, magic = FOOTER.unpack(file.read())
    if magic != FOOTER_MAGIC or length > min(FOOTER_MAX_BYTES, size - FOOTER.size):
        return {}
    file.seek(size - FOOTER.size - length)
    try:
        note = json.loads(file.read(length))
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def saved_order(path: str | os.PathLike[str]) -> tuple[str, int]:
    """Token and order of a file's save; ("", -1) where it is not ours."""
    try:
        return _save_of(read_footer(path))
    except OSError:
        return "", -1


def is_older(content: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether `content` is a snapshot, and the existing file one of a later save."""
    order = _save_of(_footer(io.BytesIO(content)))[1]
    return 0 <= order < saved_order(path)[1]


def _save_of(note: dict[str, Any]) -> tuple[str, int]:
    token, order = note.get("token"), note.get("order")
    if not isinstance(token, str) or not isinstance(order, int):
        return "", -1
    return token, order
