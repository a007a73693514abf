"""Location of a job's bytes.

They are the skeleton (the pickle that becomes `data.pkl`), then the storages in the order of their keys,
each at the next multiple of `ALIGNMENT`. A *blob* is a file in the stream's blob folder, which ends with
the job's token. If the job names no sizes, the blob is the finished file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.job.arena_layout import ALIGNMENT, SlotRef, align
from rla_client.contract.job.job_fields import count_field, text_field
from rla_client.contract.safe_names import component_problem

MAX_STORAGES = 500_000  # half of what a frame's decoder lets through
MAX_SKELETON_BYTES = 1 << 31  # torch reads the record in one piece


@dataclass(frozen=True, slots=True)
class ArenaSource(SlotRef):
    """Bytes in a slot: `skeleton_bytes` of pickle, then storages of `sizes` bytes."""

    skeleton_bytes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlobSource:
    """A file of `size` bytes in the stream's blob folder, with the final file's content."""

    blob: str
    size: int


@dataclass(frozen=True, slots=True)
class RawBlobSource(BlobSource):
    """A blob with the bytes of a slot (as in `ArenaSource`), then the job's token."""

    skeleton_bytes: int
    sizes: tuple[int, ...]


def storage_offsets(skeleton_bytes: int, sizes: Sequence[int]) -> tuple[list[int], int]:
    """Offset of each storage in its slot, and the size of the slot."""
    offsets = []
    at = align(skeleton_bytes)
    for size in sizes:
        offsets.append(at)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, at


def source_fields(source: ArenaSource | BlobSource) -> dict[str, Any]:
    """Plain data that names a source."""
    if isinstance(source, ArenaSource):
        return {"arena": source.arena, "slot": source.slot, "number": source.number}
    return {"blob": source.blob, "size": source.size}


def read_source(fields: dict[str, Any]) -> ArenaSource | BlobSource:
    """The source of a checkpoint job.

    Raises:
        RemoteProtocolError: it is none.
    """
    if "blob" not in fields:
        return read_slot_source(fields, *_layout(fields))
    blob, size = read_blob_name(fields), count_field(fields.get("size"), "size")
    return RawBlobSource(blob, size, *_layout(fields)) if "sizes" in fields else BlobSource(blob, size)


def read_slot_source(fields: dict[str, Any], skeleton_bytes: int, sizes: tuple[int, ...]) -> ArenaSource:
    """The slot that a job names.

    Raises:
        RemoteProtocolError: it is none.
    """
    arena, slot, number = (fields.get(name) for name in ("arena", "slot", "number"))
    return ArenaSource(arena, slot, number, skeleton_bytes, sizes)  # type: ignore[arg-type] # it checks them


def read_blob_name(fields: dict[str, Any]) -> str:
    """The blob that a job names.

    Raises:
        RemoteProtocolError: it is none.
    """
    blob = text_field(fields["blob"], "blob")
    problem = component_problem(blob)
    if problem is not None or blob.startswith("."):
        raise RemoteProtocolError(f"blob {blob!r} is not a file name: {problem}")
    return blob


def _layout(fields: dict[str, Any]) -> tuple[int, tuple[int, ...]]:
    """Bytes of the skeleton, and of each storage."""
    sizes = fields.get("sizes")
    if not isinstance(sizes, list) or len(sizes) > MAX_STORAGES:
        raise RemoteProtocolError("sizes is not a list of storage sizes")
    skeleton_bytes = count_field(fields.get("skeleton_bytes"), "skeleton_bytes")
    if skeleton_bytes > MAX_SKELETON_BYTES:
        raise RemoteProtocolError("skeleton_bytes is out of range")
    return skeleton_bytes, tuple(count_field(size, "size") for size in sizes)
