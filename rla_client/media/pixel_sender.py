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


MIN_SLOT_BYTES = 1 << 20  # below, a blob in the spool costs less than a millisecond
PREPARED_WAIT_S = 0.1  # for a slot that is being made: cold memory would take as long


@dataclass(frozen=True, slots=True)
class Pixels:
    """Raw pixels of an image or video, C-ordered, without a copy until they are written.

    Attributes:
        shape: (T, H, W, C); one frame for an image.
        dtype: name of a plain type of numpy.
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
        import numpy as np  # noqa: PLC0415 - who has pixels has it

        return (np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in self.parts)

    def copy_into(self, memory: memoryview) -> None:
        """Write the whole array into `memory` of `total_bytes`; no thread writes there afterwards."""
        import numpy as np  # noqa: PLC0415 - who has pixels has it

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
    """(destination, source, bytes) of arrays that come to lie one after the other from address `to` on."""
    jobs = []
    for part in parts:
        jobs.append((to, part.__array_interface__["data"][0], part.nbytes))
        to += part.nbytes
    return jobs


class PixelSender(SlotSender):
    """Sends large arrays by shared memory: they leave the training loop at the speed of a warm copy.

    Args:
        outbox: takes the jobs.
    """

    def __init__(self, outbox: JobOutbox) -> None:
        super().__init__(outbox)
        self.outbox = outbox

    def send(self, kind: str, pixels: Pixels, fields: dict[str, Any]) -> bool:
        """Copy pixels into a warm, free slot and send their job; False when that is not possible."""

        def fill(slot: Slot) -> Slot:
            with slot.memory(pixels.total_bytes) as memory:
                pixels.copy_into(memory)
            return slot

        def job(slot: Slot) -> bool:
            ref = slot.ref
            return self.outbox.job(kind, fields | {"slot": [ref.arena, ref.slot, ref.number]})

        if self._inside == threading.get_ident():  # a signal handler that records while we do
            return False
        with self._lock:
            self._inside = threading.get_ident()
            try:
                sent = self._send_in_slot(pixels.total_bytes, fill, job, patience_s=PREPARED_WAIT_S)
                return sent is not None
            finally:
                self._inside = None

    def prepare(self, nbytes: int) -> None:
        """Have slots made, in the background, for arrays of `nbytes` and a little more."""
        if nbytes >= MIN_SLOT_BYTES:
            self._prepare(nbytes)

    def prepare_one(self, sizes: Sequence[int]) -> None:
        """Have one slot made of the first of `sizes` that there is room for, before any size is known."""
        with self._lock:
            pool = self._current_pool()
            if pool is not None:
                pool.prepare_one(sizes)
