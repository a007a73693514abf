"""Shared-memory slots: large arrays leave the training loop at the speed of a warm copy.

A slot is a file of `/dev/shm` that this process keeps mapped, with its pages touched, and uses
again and again; `rla_agent/sinks/media.py` has the format and the agent's part. Here:

- `fill` takes a warm, free slot, sets it busy, copies, and returns what the job says about it;
  without one it returns None, and the caller writes a blob instead.
- `prepare` makes a slot of a size in a background thread, so the next array of that size finds
  it warm. The space is allocated before it is touched: a full /dev/shm is an OSError, never a
  SIGBUS. At most MAX_SLOTS, and at most a quarter of the free shared memory.
- A forked child starts without slots. Slots are never unlinked here, since a job may still wait
  for its array: the agent does that when the stream is finalised.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLOT_FOLDER = "/dev/shm"
SLOT_MAGIC = b"RLASLOT1"
SLOT_HEADER = struct.Struct("<8sIIQ")
SLOT_DATA_OFFSET = 4096
FREE = 0
BUSY = 1
MAX_SLOTS = 2  # one is being encoded while the other is filled; a third would wait just as long
MIN_SLOT_BYTES = 1 << 20  # below, a blob in the spool costs less than a millisecond
SHARE_OF_FREE_SHM = 4
PAGE_BYTES = 4096
TOUCH_BYTES = 1 << 20  # pages touched between two chances for other threads


@dataclass(slots=True)
class _Slot:
    name: str
    memory: mmap.mmap
    size: int

    @property
    def free(self) -> bool:
        return bool(SLOT_HEADER.unpack_from(self.memory)[1] == FREE)


class MediaSlots:
    """The slots of this process for one stream.

    Args:
        stream: name of the stream; part of the slots' names, so that the agent can tell whose
            they are.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._slots: list[_Slot] = []
        self._pid = os.getpid()
        self._number = 0
        self._made = 0
        self._preparing = False

    def fill(self, size: int, copy: Callable[[memoryview], None]) -> tuple[str, int] | None:
        """Copy an array of `size` bytes into a free slot.

        Args:
            size: bytes.
            copy: writes the whole array into the memory it is given.

        Returns:
            (slot name, number) for the job, or None: no warm slot of this size is free. In that
            case one is being prepared for the next time, where that is possible.
        """
        self._forget_after_fork()
        with self._lock:
            slot = next((slot for slot in self._slots if slot.size >= size and slot.free), None)
            if slot is None:
                return None
            self._number += 1
            number = self._number
            SLOT_HEADER.pack_into(slot.memory, 0, SLOT_MAGIC, BUSY, 0, number)
        try:
            with memoryview(slot.memory) as whole, whole[SLOT_DATA_OFFSET : SLOT_DATA_OFFSET + size] as part:
                copy(part)
        except BaseException:
            SLOT_HEADER.pack_into(slot.memory, 0, SLOT_MAGIC, FREE, 0, number)
            raise
        return slot.name, number

    def prepare(self, size: int) -> threading.Thread | None:
        """Make a slot of `size` bytes in the background, if there is room for one more.

        Returns:
            The thread that does it, None when nothing is to be done.
        """
        self._forget_after_fork()
        with self._lock:
            small = [slot for slot in self._slots if slot.size < size]
            enough = len(self._slots) - len(small) >= MAX_SLOTS
            if self._preparing or enough or size < MIN_SLOT_BYTES:
                return None
            self._preparing = True
        thread = threading.Thread(target=self._make, args=(size,), name="rla-media-slot", daemon=True)
        thread.start()
        return thread

    def _make(self, size: int) -> None:
        try:
            self._drop_small(size)
            with suppress(OSError):  # no room: blobs do
                slot = self._create(size)
                with self._lock:
                    self._slots.append(slot)
        finally:
            self._preparing = False

    def _drop_small(self, size: int) -> None:
        """Unlink free slots that are too small for what is recorded now."""
        with self._lock:
            for slot in [slot for slot in self._slots if slot.size < size and slot.free]:
                self._slots.remove(slot)
                with suppress(OSError):
                    os.unlink(f"{SLOT_FOLDER}/{slot.name}")

    def _create(self, size: int) -> _Slot:
        whole = SLOT_DATA_OFFSET + size
        room = os.statvfs(SLOT_FOLDER)
        if whole > room.f_bavail * room.f_frsize // SHARE_OF_FREE_SHM:
            raise OSError("shared memory is short")
        self._made += 1
        name = f"rla-media-{os.geteuid()}-{self._stream}-{os.getpid()}-{self._made % 10000}"
        path = f"{SLOT_FOLDER}/{name}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, whole)
            memory = mmap.mmap(descriptor, whole)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        for start in range(0, whole, TOUCH_BYTES):
            end = min(start + TOUCH_BYTES, whole)
            memory[start:end:PAGE_BYTES] = bytes(len(range(start, end, PAGE_BYTES)))
        SLOT_HEADER.pack_into(memory, 0, SLOT_MAGIC, FREE, 0, 0)
        return _Slot(name, memory, size)

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.Lock()  # the parent's may have been held at the fork
            self._slots = []
            self._preparing = False
