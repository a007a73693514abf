"""Shared-memory slots: large arrays leave the training loop at the speed of a warm copy.

A slot is a file of `/dev/shm` that this process keeps mapped, with its pages touched, and uses
again and again; `rla_agent/jobs/media.py` has the format and the agent's part. Here:

- `fill` takes a warm, free slot, sets it busy, copies, and returns what the job says about it;
  without one it returns None, and the caller writes a blob instead.
- `prepare` makes a slot of a size, and a little more, in a background thread, so the next array of
  about that size finds it warm; `prepare_first` makes one before any size is known. The space is
  allocated before it is touched: a full /dev/shm is an OSError, never a SIGBUS. At most MAX_SLOTS,
  each at most a quarter of what /dev/shm, memory and the control group have left.
- No descriptor stays open (rla_client/contract/mapping.py). A forked child starts without slots. `release`
  unlinks free slots when the run ends. Busy ones are left, since a job still waits for its array: the agent
  unlinks them when the stream is finalised.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rla_client.contract.mapping import MADV_POPULATE_WRITE
from rla_client.contract.media_job import (
    BUSY,
    FREE,
    SLOT_DATA_OFFSET,
    SLOT_FOLDER,
    SLOT_HEADER,
    SLOT_MAGIC,
    SLOT_OWNER_BYTES,
    SLOT_OWNER_MAX,
    SLOT_OWNER_OFFSET,
)
from rla_client.stream import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rla_client.contract.mapping import Mapping

MAX_SLOTS = 2  # one is being encoded while the other is filled; a third would wait just as long
MIN_SLOT_BYTES = 1 << 20  # below, a blob in the spool costs less than a millisecond
MEMORY_SHARE = 4
PAGE_BYTES = 4096
POPULATE_BYTES = 4 << 20  # faulted in by one call, about 2 ms, during which the GIL is free
GROWTH = 1.25  # the next rollout is a little longer; a slot too small costs a hundred milliseconds
FIRST_SLOT_BYTES = 64 << 20  # 300 frames of 256 x 256 RGB are 59 MB
PREPARED_WAIT_S = 0.1  # for a slot that is being made: cold memory would take as long
_UNIT_BYTES = 1 << 20  # sizes are multiples of it


@dataclass(slots=True)
class _Slot:
    name: str
    mapping: Mapping  # goes with the last who fills it
    memory: memoryview
    size: int

    @property
    def free(self) -> bool:
        return bool(SLOT_HEADER.unpack_from(self.memory)[1] == FREE)


class MediaSlots:
    """The slots of this process for one stream.

    Args:
        stream: name of the stream; part of the slots' names, so that the agent can tell whose
            they are.
        owner: the stream's folder, written into each slot: once it is gone, so may the slot.
    """

    def __init__(self, stream: str, owner: str = "") -> None:
        self._stream = stream
        self._owner = owner.encode("utf-8", "surrogateescape")[:SLOT_OWNER_MAX]
        self._lock = threading.Lock()
        self._slots: list[_Slot] = []
        self._number = 0
        self._made = 0
        self._thread: threading.Thread | None = None
        self._thread_size = 0
        self._released = False
        self._making: str | None = None
        forks.register(self)

    def fill(self, size: int, copy: Callable[[memoryview], None]) -> tuple[str, int] | None:
        """Copy an array of `size` bytes into a free slot.

        Args:
            size: bytes.
            copy: writes the whole array into the memory it is given.

        Returns:
            (slot name, number) for the job, or None: no warm slot of this size is free. In that
            case one is being prepared for the next time, where that is possible.
        """
        claimed = self._claim(size)
        making = self._thread
        # is_alive: another thread of the training may be about to start it
        if claimed is None and making is not None and making.is_alive() and self._thread_size >= size:
            making.join(PREPARED_WAIT_S)
            claimed = self._claim(size)
        if claimed is None:
            return None
        slot, number = claimed
        try:
            with slot.memory[SLOT_DATA_OFFSET : SLOT_DATA_OFFSET + size] as part:
                copy(part)
        except BaseException:
            SLOT_HEADER.pack_into(slot.memory, 0, SLOT_MAGIC, FREE, 0, number)
            raise
        return slot.name, number

    def give_back(self, filled: tuple[str, int]) -> None:
        """Free a slot that `fill` gave: there is no job that names it."""
        with self._lock:
            for slot in self._slots:
                if slot.name == filled[0]:
                    SLOT_HEADER.pack_into(slot.memory, 0, SLOT_MAGIC, FREE, 0, filled[1])

    def release(self) -> None:
        """Give back what no job waits for; the slots of this object are not used again."""
        with self._lock:
            self._released = True
            for slot in self._slots:
                if slot.free:
                    _unlink(slot.name)
            if self._making is not None:  # by a thread that this process may not live to see the end of
                _unlink(self._making)
            self._slots = []

    def _claim(self, size: int) -> tuple[_Slot, int] | None:
        """Make the smallest free slot of at least this size busy; None without one."""
        with self._lock:
            free = [slot for slot in self._slots if slot.size >= size and slot.free]
            if not free:
                return None
            slot = min(free, key=lambda slot: slot.size)
            self._number += 1
            SLOT_HEADER.pack_into(slot.memory, 0, SLOT_MAGIC, BUSY, 0, self._number)
            return slot, self._number

    def prepare(self, size: int) -> threading.Thread | None:
        """Make a slot of `size` bytes in the background, if there is room for one more.

        Returns:
            The thread that does it, None when nothing is to be done.
        """
        if size < MIN_SLOT_BYTES:
            return None
        return self._start(size, (_rounded(size * GROWTH), _rounded(size)))

    def prepare_first(self) -> threading.Thread | None:
        """Make one slot before it is known how large arrays will be, as large as there is room for."""
        if self._slots:
            return None
        sizes = [FIRST_SLOT_BYTES >> shift for shift in range(5)]
        return self._start(FIRST_SLOT_BYTES, sizes)

    def _start(self, size: int, sizes: Sequence[int]) -> threading.Thread | None:
        with self._lock:
            small = [slot for slot in self._slots if slot.size < size]
            enough = len(self._slots) - len(small) >= MAX_SLOTS
            if self._thread is not None or enough or self._released:
                return None
            thread = threading.Thread(
                target=self._make, args=(size, sizes), name="rla-media-slot", daemon=True
            )
            self._thread, self._thread_size = thread, size
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is going down
            self._thread = None
            return None
        return thread

    def _make(self, size: int, sizes: Sequence[int]) -> None:
        """Make a slot of the first of `sizes` that there is room for."""
        try:
            self._drop_small(size)
            for one in sizes:
                with suppress(OSError):  # no room for any: blobs do
                    slot = self._create(one)
                    with self._lock:
                        self._making = None
                        if self._released:
                            _unlink(slot.name)
                        else:
                            self._slots.append(slot)
                    return
        finally:
            self._thread = self._making = None

    def _drop_small(self, size: int) -> None:
        """Unlink free slots that are too small for what is recorded now."""
        with self._lock:
            for slot in [slot for slot in self._slots if slot.size < size and slot.free]:
                self._slots.remove(slot)
                _unlink(slot.name)

    def _create(self, size: int) -> _Slot:
        from rla_client.checkpoint.arena import memory_room  # noqa: PLC0415 - in the background
        from rla_client.contract.mapping import create_mapped  # noqa: PLC0415

        whole = SLOT_DATA_OFFSET + size
        if whole > memory_room() // MEMORY_SHARE:
            raise OSError("shared memory is short")
        self._made += 1
        name = f"rla-media-{os.geteuid()}-{self._stream}-{os.getpid()}-{self._made % 10000}"
        path = f"{SLOT_FOLDER}/{name}"
        self._making = name
        mapping = create_mapped(path, whole)
        memory = mapping.view()
        SLOT_HEADER.pack_into(memory, 0, SLOT_MAGIC, FREE, 0, 0)
        SLOT_OWNER_BYTES.pack_into(memory, SLOT_HEADER.size, len(self._owner))
        memory[SLOT_OWNER_OFFSET : SLOT_OWNER_OFFSET + len(self._owner)] = self._owner
        _populate(mapping)  # last: a process killed meanwhile leaves a slot that names its owner
        return _Slot(name, mapping, memory, size)

    def after_fork_in_child(self) -> None:
        """Forget the slots: they are the parent's to unlink."""
        forks.renew(self._lock)
        self._slots = []
        self._thread = self._making = None


def _unlink(name: str) -> None:
    with suppress(OSError):
        os.unlink(f"{SLOT_FOLDER}/{name}")


def _rounded(size: float) -> int:
    return -(-int(size) // _UNIT_BYTES) * _UNIT_BYTES


def _populate(mapping: Mapping) -> None:
    """Fault all pages in, letting other threads run meanwhile."""
    memory = mapping.view()
    for start in range(0, mapping.size, POPULATE_BYTES):
        size = min(POPULATE_BYTES, mapping.size - start)
        if not mapping.advise(start, size, MADV_POPULATE_WRITE):
            pages = range(start + PAGE_BYTES - 1, start + size, PAGE_BYTES)  # the header stays
            memory[pages.start : pages.stop : PAGE_BYTES] = bytes(len(pages))
