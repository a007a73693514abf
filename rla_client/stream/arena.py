"""Arena of reused shared memory.

An `Arena` is one file in /dev/shm (layout: contract/job/arena_layout.py), mapped by mmap(2) (mapping.py),
so that copying needs only an address. Invariants:

- posix_fallocate takes the space before the first touch: a full /dev/shm is an error there, never a SIGBUS.
- A daemon thread faults pages in, PREFAULT_BYTES at a time: fresh shared memory costs 35 times a warm copy.
- The file is flock'ed while it is mapped; sweepers remove only arenas whose lock is free.
- A child of fork has neither mapping (MADV_DONTFORK) nor lock, and forgets the pool.
- A signal handler's exception may come between any two lines of a pool's methods: nothing reads a closed
  arena's memory, and the next call completes an interrupted change.
- An arena that a larger one replaces is removed once all its slots are FREE; the agent sweeps the rest.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rla_client.contract.job.arena_layout import (
    ARENA_DATA_OFFSET,
    ARENA_FOLDER,
    ARENA_HEADER,
    ARENA_MAGIC,
    ARENA_OWNER_MAX,
    ARENA_OWNER_OFFSET,
    ARENA_VERSION,
    MAX_SLOTS,
    PAGE,
    SLOT_BUSY,
    SLOT_FREE,
    SLOT_HEADER,
    ArenaName,
    align,
    slot_header_offset,
    spool_key,
    stream_key,
)
from rla_client.stream.free_memory import MEMORY_SHARE, memory_room
from rla_client.stream.mapping import MADV_POPULATE_WRITE, Mapping, create_mapped
from rla_client.stream.memcpy import wait_for_copies

SLOT_WAIT_MAX_S = 0.25  # for a busy slot; callers wait for as long as their last copy took
SLOT_POLL_S = 0.0005
SLOTS = 2  # one is filled while the agent reads the other
SMALL_ARENA_BYTES = 72 << 20  # small checkpoints may come faster than fsyncs end: more slots, up to this
PREFAULT_BYTES = 4 << 20  # holds the address space's lock for about a millisecond
GROWTH = 1.125  # a state dict that grows a little (optimiser state appears) still fits


class Arena:
    """One mapped file of slots. Made by `create_arena`, used by one process."""

    def __init__(self, name: str, mapping: Mapping, slots: int, slot_bytes: int) -> None:
        self.name = name
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.total = mapping.size
        self.closed = False
        self.short = False  # memory sufficed for fewer slots than requested
        self.on_close: Callable[[], None] | None = None
        self._pid = os.getpid()
        self._mapping = mapping
        self.address = mapping.address

    def slot_address(self, slot: int) -> int:
        """Address of a slot's bytes in this process's memory."""
        return self.address + ARENA_DATA_OFFSET + slot * self.slot_bytes

    def header(self, slot: int) -> tuple[int, int]:
        """Current state and number of a slot."""
        raw = ctypes.string_at(self.address + slot_header_offset(slot), SLOT_HEADER.size)
        state, number = SLOT_HEADER.unpack(raw)
        return state, number

    def write_head(self, owner: bytes) -> None:
        """Write the file's header: without it, sweepers and the agent skip the file."""
        ctypes.memmove(self.address + ARENA_OWNER_OFFSET, owner, len(owner))
        head = ARENA_HEADER.pack(ARENA_MAGIC, ARENA_VERSION, self.slots, self.slot_bytes, len(owner))
        ctypes.memmove(self.address, head, len(head))

    def mark(self, slot: int, state: int, number: int) -> None:
        """Set a slot's header, unless the mapping is closed."""
        if self.closed:
            return
        raw = SLOT_HEADER.pack(state, number)
        ctypes.memmove(self.address + slot_header_offset(slot), raw, len(raw))

    def free_slot(self) -> int | None:
        """Index of a FREE slot, None when all are BUSY or the mapping is gone."""
        for slot in range(self.slots if not self.closed else 0):
            if self.header(slot)[0] == SLOT_FREE:
                return slot
        return None

    @property
    def idle(self) -> bool:
        """True when no slot holds bytes that the agent still has to read, or the mapping is gone."""
        return self.closed or all(self.header(slot)[0] == SLOT_FREE for slot in range(self.slots))

    def prefault(self, stop: threading.Event) -> None:
        """Touch every page, in small pieces, until done or stopped."""
        for offset in range(0, self.total, PREFAULT_BYTES):
            size = min(PREFAULT_BYTES, self.total - offset)
            if stop.is_set():
                return
            if not self._mapping.advise(offset, size, MADV_POPULATE_WRITE):  # before Linux 5.14
                pages = range(offset + PAGE - 1, offset + size, PAGE)  # no header reaches so far
                self._mapping.view()[pages.start : pages.stop : PAGE] = bytes(len(pages))

    def close(self, *, unlink: bool) -> None:
        """Unmap it, release the lock, and remove the file if `unlink`."""
        if os.getpid() != self._pid or self.closed:
            return
        if unlink:
            with suppress(OSError):
                os.unlink(os.path.join(ARENA_FOLDER, self.name))
        wait_for_copies()
        if self.on_close is not None:
            self.on_close()
        self.closed = True  # from here on nobody reads the memory
        self._mapping.close()

    def forget_in_child(self) -> None:
        """After fork: the mapping is not there."""
        self.closed = True


def create_arena(
    stream_folder: Path,
    slot_bytes: int,
    *,
    least_slots: int = SLOTS,
    already: int = 0,
    stop: threading.Event | None = None,
) -> Arena | None:
    """Make an arena with room for `slot_bytes` per slot; None when memory is too short for one.

    Args:
        stream_folder: spool folder of the stream that will name this arena in its jobs.
        slot_bytes: what one job takes.
        least_slots: number of slots to make if there is room; more of small ones.
        already: bytes of other arenas of this process, which count against the same share.
        stop: once set, the arena is discarded.
    """
    slot_bytes = align(max(slot_bytes, PAGE), PAGE)
    room = memory_room() // MEMORY_SHARE - already - ARENA_DATA_OFFSET
    wanted = min(max(least_slots, SMALL_ARENA_BYTES // slot_bytes), MAX_SLOTS)
    slots = min(wanted, max(room, 0) // slot_bytes)
    if slots == 0:
        return None
    name = ArenaName(
        os.geteuid(), spool_key(stream_folder.parent), stream_key(stream_folder.name), secrets.token_hex(4)
    ).text
    path = os.path.join(ARENA_FOLDER, name)
    try:
        mapping = create_mapped(path, ARENA_DATA_OFFSET + slots * slot_bytes, stop)
    except OSError:
        return None
    arena = Arena(name, mapping, slots, slot_bytes)
    arena.short = slots < wanted
    owner = str(stream_folder).encode("utf-8", "surrogateescape")[:ARENA_OWNER_MAX]
    arena.write_head(owner)
    return arena


class ArenaPool:
    """The current arena of one process, its predecessors, and the thread that makes the next.

    All methods are called with the owner's lock held, `prepare`'s thread aside.
    """

    def __init__(self, stream_folder: Path) -> None:
        self.stream_folder = stream_folder
        self.current: Arena | None = None
        self._retired: list[Arena] = []
        self._thread: threading.Thread | None = None
        self._making_bytes = 0
        self._made: Arena | None = None
        self._refused_bytes: int | None = None
        self._stop = threading.Event()

    @property
    def preparing(self) -> bool:
        """True while an arena is being made."""
        return self._thread is not None and self._thread.is_alive()

    def wait_prepared(self, timeout: float) -> bool:
        """Wait for the making of an arena to end; True when one is there afterwards."""
        if self._thread is not None:
            self._thread.join(timeout)
        self._adopt()
        return self.current is not None

    def await_larger(self, nbytes: int, timeout: float) -> None:
        """Wait for an arena with slots of `nbytes`, if one is being made and none exists."""
        self._adopt()
        fits = self.current is not None and self.current.slot_bytes >= nbytes
        if not fits and self.preparing and self._making_bytes >= nbytes:
            self.wait_prepared(timeout)

    def prepare(self, nbytes: int) -> None:
        """Make an arena with slots of `nbytes` in the background, if there is none yet."""
        self._adopt()
        arena = self.current
        if arena is not None and arena.slot_bytes >= nbytes and (arena.slots >= SLOTS or arena.short):
            return
        self._start([int(nbytes * GROWTH), nbytes], SLOTS)

    def prepare_one(self, sizes: Sequence[int]) -> None:
        """Make one slot, as large as there is room for, before the needed size is known."""
        self._adopt()
        if self.current is None:
            self._start(sizes, 1)

    def _start(self, sizes: Sequence[int], least_slots: int) -> None:
        begun = self._thread is not None and (self._thread.ident is None or self._thread.is_alive())
        if begun or (self._refused_bytes is not None and sizes[-1] >= self._refused_bytes):
            return  # it is under way, or memory was too short for less than that
        self._making_bytes = sizes[0]
        self._thread = threading.Thread(
            target=self._make, args=(sizes, least_slots), name="rla-arena", daemon=True
        )
        try:
            with suppress(RuntimeError):  # no more threads, or the interpreter is going down
                self._thread.start()
        finally:
            if self._thread.ident is None:
                self._thread = None

    def claim(self, nbytes: int, number: int, patience_s: float = 0.0) -> tuple[Arena, int] | None:
        """Claim a FREE slot as BUSY under `number`; None when there is none of that size in time."""
        deadline = time.monotonic() + min(patience_s, SLOT_WAIT_MAX_S)
        while True:
            self._adopt()
            self._close_retired()
            arena = self.current
            if arena is None or arena.slot_bytes < nbytes:
                return None
            slot = arena.free_slot()
            if slot is not None:
                arena.mark(slot, SLOT_BUSY, number)
                return arena, slot
            if time.monotonic() >= deadline:
                return None
            time.sleep(SLOT_POLL_S)

    def give_back(self, number: int) -> None:
        """Free the slot that was claimed under `number`, if there is one: no frame names it."""
        for arena in (self.current, *self._retired):
            if arena is not None and not arena.closed:
                for slot in range(arena.slots):
                    if arena.header(slot) == (SLOT_BUSY, number):
                        arena.mark(slot, SLOT_FREE, 0)

    def retire(self) -> None:
        """Stop using the current arena."""
        if self.current is not None:
            if self.current not in self._retired:
                self._retired.append(self.current)
            self.current = None

    def close(self) -> None:
        """Remove arenas that no job needs; the agent sweeps the others once their checkpoints are durable."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()  # it looks at `_stop` every few milliseconds of work
        self._adopt()
        self.retire()
        for arena in self._retired:
            arena.close(unlink=arena.idle)
        self._retired.clear()

    def forget_in_child(self) -> None:
        """After fork: drop everything without touching what the parent still uses."""
        for arena in (self.current, self._made, *self._retired):
            if arena is not None:
                arena.forget_in_child()
        self.current = self._made = self._thread = None
        self._retired = []

    def _make(self, sizes: Sequence[int], least_slots: int) -> None:
        """Make an arena with slots of the first of `sizes` that there is room for."""
        already = sum(arena.total for arena in (*self._retired, self.current) if arena is not None)
        for size in sizes:
            arena = create_arena(
                self.stream_folder, size, least_slots=least_slots, already=already, stop=self._stop
            )
            if arena is not None:
                arena.prefault(self._stop)
                self._made = arena
                return
        self._refused_bytes = min(sizes[-1], self._refused_bytes or sizes[-1])

    def _adopt(self) -> None:
        if self.current in self._retired:
            self.current = None  # an exception came in the middle of `retire`
        made = self._made
        if made is None:
            return
        if self.current is not made:
            self.retire()
            self.current = made
        self._made = None

    def _close_retired(self) -> None:
        waiting = []
        for arena in self._retired:
            if arena.idle:
                arena.close(unlink=True)
            else:
                waiting.append(arena)
        self._retired = waiting
