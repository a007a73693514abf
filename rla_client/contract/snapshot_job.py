"""What client and agent agree on about snapshots of a training: file names, footer, the job.

A snapshot file is one pickle, and behind it, where `pickle.load` does not look, a footer: a JSON
object, its length in bytes (4, little endian) and the magic `rlaS`. The footer says what has to be known
without unpickling: `itr`, `rows`, and `token` and `order` of the save. The later of two saves of
one name is the one with the higher order; nobody replaces it by an earlier one.

The job of a snapshot names a slot of shared memory, or a blob, that holds the file byte by byte (layout
and rules of both: checkpoint_job.py). So the agent copies, and never unpickles.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from rla_client.contract.arena import MAX_SLOTS, ArenaName
from rla_client.contract.bounded import INT64
from rla_client.contract.checkpoint_job import ArenaSource, BlobSource
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.layout import CHECKPOINT, LOG, component_problem

JOB_KIND = "snapshot"
JOB_VERSION = 1
MAX_NAMES = 2  # gap_and_last writes itr_N.pkl and params.pkl
FOOTER = struct.Struct("<I4s")
FOOTER_MAGIC = b"rlaS"
FOOTER_MAX_BYTES = 1 << 20  # numbers and short texts only; anything longer is not a footer of ours

_NAME = re.compile(r"params\.pkl|itr_[0-9]{1,19}\.pkl")
_TOKEN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """One snapshot on its way to its folder.

    Attributes:
        token: 16 hex digits that name the save.
        order: nanoseconds since 1970 at the save, strictly growing in one run.
        kind: which folder of the run: log, or the item's checkpoint.
        names: file names that get this content.
        source: where the content lies. A slot's `skeleton_bytes` is the size of the whole file.
    """

    token: str
    order: int
    kind: str
    names: tuple[str, ...]
    source: ArenaSource | BlobSource

    def encode(self) -> dict[str, Any]:
        """Plain data for a JOB frame."""
        fields: dict[str, Any] = {
            "v": JOB_VERSION,
            "token": self.token,
            "order": self.order,
            "kind": self.kind,
            "names": list(self.names),
        }
        source = self.source
        if isinstance(source, ArenaSource):
            fields |= {"arena": source.arena, "slot": source.slot, "number": source.number}
            return fields | {"size": source.skeleton_bytes}
        return fields | {"blob": source.blob, "size": source.size}

    @classmethod
    def decode(cls, fields: object) -> SnapshotJob:
        """Check and read what a frame holds.

        Raises:
            RemoteProtocolError: not what `encode` makes, or a name that is not a snapshot's.
        """
        if not isinstance(fields, dict) or fields.get("v") != JOB_VERSION:
            raise RemoteProtocolError("not a snapshot job of this version")
        token, kind, names = fields.get("token"), fields.get("kind"), fields.get("names")
        if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
            raise RemoteProtocolError("token is not 16 hex digits")
        if kind not in {LOG, CHECKPOINT}:
            raise RemoteProtocolError("snapshots go into the folders log and checkpoint only")
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_NAMES:
            raise RemoteProtocolError("names is not a short list")
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            raise RemoteProtocolError(f"{names!r} are not names of snapshots")
        return cls(token, _count(fields, "order"), kind, tuple(names), _source(fields))


def encode_footer(note: dict[str, Any]) -> bytes:
    """What stands behind the pickle; `note` is plain data."""
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
    """Token and order of the save that a file holds; ("", -1) where there is none of ours."""
    try:
        return _save_of(read_footer(path))
    except OSError:
        return "", -1


def is_older(content: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether `content` is a snapshot, and the file that is there one of a later save."""
    order = _save_of(_footer(io.BytesIO(content)))[1]
    return 0 <= order < saved_order(path)[1]


def _save_of(note: dict[str, Any]) -> tuple[str, int]:
    token, order = note.get("token"), note.get("order")
    if not isinstance(token, str) or not isinstance(order, int):
        return "", -1
    return token, order


def _source(fields: dict[str, Any]) -> ArenaSource | BlobSource:
    size = _count(fields, "size")
    if "blob" in fields:
        blob = fields["blob"]
        if not isinstance(blob, str) or component_problem(blob) is not None or blob.startswith("."):
            raise RemoteProtocolError(f"blob {blob!r} is not a file name")
        return BlobSource(blob, size)
    arena = fields.get("arena")
    if not isinstance(arena, str) or ArenaName.parse(arena) is None:
        raise RemoteProtocolError(f"{arena!r} is not the name of an arena")
    slot = _count(fields, "slot")
    if slot >= MAX_SLOTS:
        raise RemoteProtocolError("slot is out of range")
    return ArenaSource(arena, slot, _count(fields, "number"), size, ())


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < INT64:
        raise RemoteProtocolError(f"{name} is not a count")
    return value
