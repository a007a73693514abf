"""Raw arrays on their way to an image or video: what a job may say, and the shared-memory slots.

Small arrays come as blobs in the spool. Large ones come in *slots*: files of `/dev/shm` that the
client keeps mapped and uses again and again, because a warm copy is as fast as memory. Their layout is in
rla_client/contract/media_job.py.

The client sets *busy* and the number before it copies, then sends the frame; the agent sets
*free* when the job has ended. A slot with another number than the frame's holds another array:
that job's array is lost (a replay after the slot was used again), and it is never written under
the wrong name. Slots are read by pread, never mapped. The client unlinks free slots when its run
ends; when a stream is finalised and its jobs have ended, `sweep_slots` unlinks what is left, and
`sweep_abandoned_slots` what belongs to a stream whose folder is gone.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.media_job import (
    BUSY,
    FREE,
    MAX_FPS,
    SLOT_DATA_OFFSET,
    SLOT_FOLDER,
    SLOT_HEADER,
    SLOT_MAGIC,
    SLOT_OWNER_BYTES,
    SLOT_OWNER_OFFSET,
)

MAX_SIDE = 16384  # pixels
MAX_FRAMES = 1_000_000
MAX_RAW_BYTES = 4 << 30
ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8,
    "int64": 8, "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
_SLOT_NAME = re.compile(r"rla-media-(?P<uid>\d{1,10})-(?P<stream>[A-Za-z0-9._-]{1,180})-\d{1,10}-\d{1,4}")


@dataclass(frozen=True, slots=True)
class RawArray:
    """Shape and type of the raw bytes of an image (one frame) or video."""

    shape: tuple[int, int, int, int]  # T, H, W, C
    dtype: str
    fps: float

    @property
    def total_bytes(self) -> int:
        """Size of the array."""
        count, height, width, channels = self.shape
        return count * height * width * channels * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class SlotRef:
    """An array in a slot."""

    name: str
    number: int


def parse_array(fields: dict[Any, Any]) -> RawArray:
    """Check shape, type and frame rate of a job.

    Raises:
        RemoteProtocolError: they are not what a client writes.
    """
    match fields.get("shape"):
        case [int() as count, int() as height, int() as width, int() as channels] if channels in (1, 3, 4):
            shape = (count, height, width, channels)
        case _:
            raise RemoteProtocolError("no shape of a picture or video")
    dtype = fields.get("dtype")
    fps = fields.get("fps", 1.0)
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise RemoteProtocolError(f"no type of pixels: {dtype!r:.50}")
    if not isinstance(fps, (int, float)) or isinstance(fps, bool) or not 0 < fps <= MAX_FPS:
        raise RemoteProtocolError(f"no frame rate: {fps!r:.50}")
    if not (1 <= count <= MAX_FRAMES and 1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
        raise RemoteProtocolError(f"a shape of {shape} is over the limits")
    array = RawArray(shape, dtype, float(fps))
    if array.total_bytes > MAX_RAW_BYTES:
        raise RemoteProtocolError(f"a raw array of {array.total_bytes} bytes is over the limit")
    return array


def parse_slot(value: object) -> SlotRef:
    """Check a reference to a slot: it must bear this uid.

    Raises:
        RemoteProtocolError: it is none.
    """
    match value:
        case [str() as name, int() as number] if number >= 0:
            found = _SLOT_NAME.fullmatch(name)
            if found and int(found["uid"]) == os.geteuid():
                return SlotRef(name, number)
    raise RemoteProtocolError("no reference to a slot of ours")


def open_slot(slot: SlotRef, size: int) -> int:
    """Open a slot and check that it holds this job's array; returns a descriptor.

    Raises:
        OSError: it is not there.
        RemoteProtocolError: it is not ours, too short, or holds another array by now.
    """
    path = f"{SLOT_FOLDER}/{slot.name}"
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if not ours or found.st_size < SLOT_DATA_OFFSET + size:
        os.close(descriptor)
        raise RemoteProtocolError(f"{slot.name} is no slot of ours of this size")
    magic, state, _, number = SLOT_HEADER.unpack(os.pread(descriptor, SLOT_HEADER.size, 0))
    if magic != SLOT_MAGIC or state != BUSY or number != slot.number:
        os.close(descriptor)
        raise RemoteProtocolError(f"{slot.name} holds another array by now: job {slot.number} is lost")
    return descriptor


def free_slot(slot: SlotRef) -> None:
    """Give a slot back to its client, if it still holds this job's array."""
    with suppress(OSError, RemoteProtocolError):
        descriptor = open_slot(slot, 0)
        try:
            os.pwrite(descriptor, FREE.to_bytes(4, "little"), 8)
        finally:
            os.close(descriptor)


def sweep_slots(stream: str) -> int:
    """Unlink the slots of a finalised stream; returns how many there were."""
    return sum(_unlink(name) for name, found in _own_slots() if found == stream)


def sweep_abandoned_slots() -> int:
    """Unlink the slots of streams whose folder is gone, of any spool of this user; returns how many."""
    return sum(_unlink(name) for name, _ in _own_slots() if _is_abandoned(name))


def _own_slots() -> list[tuple[str, str]]:
    """File name and stream of each slot of this uid."""
    names = os.listdir(SLOT_FOLDER) if os.path.isdir(SLOT_FOLDER) else []
    matches = [found for found in map(_SLOT_NAME.fullmatch, names) if found]
    return [(found[0], found["stream"]) for found in matches if int(found["uid"]) == os.geteuid()]


def _is_abandoned(name: str) -> bool:
    try:
        descriptor = os.open(
            f"{SLOT_FOLDER}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return False
    try:
        head = os.pread(descriptor, SLOT_DATA_OFFSET, 0)
    finally:
        os.close(descriptor)
    if len(head) < SLOT_DATA_OFFSET or not head.startswith(SLOT_MAGIC):
        return False  # in the making
    (length,) = SLOT_OWNER_BYTES.unpack_from(head, SLOT_HEADER.size)
    owner = head[SLOT_OWNER_OFFSET : SLOT_OWNER_OFFSET + length]
    return owner.startswith(b"/") and not os.path.lexists(owner)


def _unlink(name: str) -> bool:
    with suppress(OSError):
        os.unlink(f"{SLOT_FOLDER}/{name}")
        return True
    return False
