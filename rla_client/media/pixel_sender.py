"""Sender of raw pixels through shared memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rla_client.media.job_outbox import JobOutbox
from rla_client.stream.memcpy import Copy, copy_memory
from rla_client.stream.slot_sender import Slot, SlotSender

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MIN_SLOT_BYTES = 1 << 20  # for less, a blob in the spool costs less than a millisecond
PREPARED_WAIT_S = 0.1  # for a slot in preparation; a copy to cold memory would take as long


@dataclass(frozen=True, slots=True)
class Pixels:
    """Raw pixels of an image or video, C-ordered; they are not copied until they are written.

    Attributes:
        shape: (T, H, W, C); one frame for an image.
        dtype: name of a numeric type of numpy.
        parts: arrays of shape (t, H, W, C) whose t add up to T.
    """

    shape: tuple[int, int, int, int]
    dtype: str
    parts: tuple[Any, ...]

    @property
    def total_bytes(self) -> int:
        """Size of the C-ordered array."""
        return sum(part.nbytes for part in self.parts)

    def chunks(self) -> Iterator[Any]:
        """The C-ordered bytes, part by part."""
        import numpy as np  # noqa: PLC0415 - loaded by whoever has pixels

        return (np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in self.parts)

    def copy_into(self, memory: memoryview) -> None:
        """Write the array into `memory` of `total_bytes`; all threads have finished when this returns."""
        import numpy as np  # noqa: PLC0415 - loaded by whoever has pixels

        flat = np.frombuffer(memory, np.uint8)
        if all(part.flags.c_contiguous for part in self.parts):
            copy_memory(_copies(self.parts, flat.ctypes.data))
            return
        start = 0
        for part in self.parts:
            target = flat[start : start + part.nbytes].view(part.dtype).reshape(part.shape)
            np.copyto(target, part)
            start += part.nbytes


def _copies(parts: Iterable[Any], to: int) -> list[Copy]:
    """(destination, source, bytes) of arrays that are copied one after another to address `to`."""
    jobs = []
    for part in parts:
        jobs.append((to, part.__array_interface__["data"][0], part.nbytes))
        to += part.nbytes
    return jobs


class PixelSender(SlotSender):
    """Sends large arrays through shared memory: the training loop pays for a copy into warm memory.

    Args:
        outbox: takes the jobs.
    """

    def __init__(self, outbox: JobOutbox) -> None:
        super().__init__(outbox)
        self.outbox = outbox

    def send(self, kind: str, pixels: Pixels, fields: dict[str, Any]) -> bool:
        """Copy pixels into a warm, free slot and send their job; returns False if that is not possible."""

        def fill(slot: Slot) -> Slot:
            with slot.memory(pixels.total_bytes) as memory:
                pixels.copy_into(memory)
            return slot

        def job(slot: Slot) -> bool:
            ref = slot.ref
            return self.outbox.job(kind, fields | {"slot": [ref.arena, ref.slot, ref.number]})

        if self._inside == threading.get_ident():  # in a signal handler during another call
            return False
        with self._lock:
            self._inside = threading.get_ident()
            try:
                sent = self._send_in_slot(pixels.total_bytes, fill, job, patience_s=PREPARED_WAIT_S)
                return sent is not None
            finally:
                self._inside = None

    def prepare(self, nbytes: int) -> None:
        """Prepare slots in the background for arrays of `nbytes` or slightly more."""
        if nbytes >= MIN_SLOT_BYTES:
            self._prepare(nbytes)

    def prepare_one(self, sizes: Sequence[int]) -> None:
        """Prepare one slot of the first of `sizes` that fits, before any array is known."""
        with self._lock:
            pool = self._current_pool()
            if pool is not None:
                pool.prepare_one(sizes)
