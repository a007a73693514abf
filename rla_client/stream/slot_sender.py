"""Sender of an arena's slots.

A slot that this process made BUSY is made FREE by the agent, or by us if no frame was written. One that a
`SlotSender` claimed ends in one of three ways: a frame in the stream names it (the agent frees it), it is
given back (no frame was written), or the whole pool is retired (an exception came so close to the frame
that its fate is unknown). A forked child forgets the parent's arenas and never touches them.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from rla_client.contract.job.arena_layout import SLOT_BUSY, SlotRef
from rla_client.contract.process.fork_hooks import at_fork
from rla_client.stream.arena import Arena, ArenaPool

Source = TypeVar("Source")
_savers: weakref.WeakSet[SlotSender] = weakref.WeakSet()  # to be closed at exit


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot with the bytes of job `number`."""

    arena: Arena
    index: int
    number: int

    @property
    def address(self) -> int:
        """Address of its bytes in this process."""
        return self.arena.slot_address(self.index)

    def memory(self, nbytes: int) -> memoryview:
        """Its first bytes; only to be used while the saver's lock is held."""
        return memoryview((ctypes.c_ubyte * nbytes).from_address(self.address)).cast("B")

    @property
    def ref(self) -> SlotRef:
        """Its reference in a job."""
        return SlotRef(self.arena.name, self.index, self.number)

    @property
    def arrived(self) -> bool:
        """True once the agent has finished the job."""
        return self.arena.closed or self.arena.header(self.index) != (SLOT_BUSY, self.number)


class HasStream(Protocol):
    """The interface of an outbox."""

    @property
    def stream_folder(self) -> Path | None:
        """Folder of this process's stream; None while there is none."""


class SlotSender:
    """Base of senders that copy into shared memory. Its lock is held around each save.

    Args:
        outbox: takes the jobs; its lock is not held while bytes are copied.
    """

    def __init__(self, outbox: HasStream) -> None:
        self._stream = outbox
        self._number = 0
        self._copy_s = 0.0
        self._reset()
        at_fork(self)
        _savers.add(self)

    def _reset(self) -> None:
        """Initialize, in a process without a save under way: at the beginning, and in a forked child."""
        self._lock = threading.RLock()
        self._inside: int | None = None  # the thread that is saving: a signal handler may save, too
        self._pool: ArenaPool | None = None

    def close(self) -> None:
        """Release shared memory. The agent reads and then removes unread slots."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def after_fork_in_child(self) -> None:
        """Forget the parent's arenas and saves without touching them."""
        if self._pool is not None:
            self._pool.forget_in_child()
        self._reset()

    def _send_in_slot(
        self,
        nbytes: int,
        fill: Callable[[Slot], Source],
        send: Callable[[Source], bool],
        *,
        patience_s: float = 0.0,
    ) -> tuple[Slot, Source] | None:
        """Copy into a slot and name it in the stream.

        Args:
            nbytes: required size of the slot.
            fill: copies, and returns the content for the job.
            send: puts the job into the stream; False when the spool is full.
            patience_s: to wait for an arena that is being made.

        Returns:
            The slot and the content; None when no slot is large enough and free, or the stream took no job.
        """
        pool = self._current_pool()
        if pool is None:
            return None
        if patience_s:
            pool.await_larger(nbytes, patience_s)
        self._number += 1
        number = self._number
        try:
            claimed = pool.claim(nbytes, number, patience_s=self._copy_s)
            if claimed is None:
                return None
            slot = Slot(*claimed, number)
            started = time.perf_counter()
            source = fill(slot)
            self._copy_s = time.perf_counter() - started
        except BaseException:  # Ctrl-C, or no memory: no frame names the slot yet
            pool.give_back(number)
            raise
        try:
            taken = send(source)
        except BaseException:
            pool.retire()  # Ctrl-C in the middle: the frame may exist, so the slot is not ours
            raise
        if not taken:
            pool.give_back(number)
            return None
        return slot, source

    def _current_pool(self) -> ArenaPool | None:
        folder = self._stream.stream_folder
        if folder is None:
            return None
        if self._pool is None or self._pool.stream_folder != folder:
            if self._pool is not None:
                self._pool.close()
            self._pool = ArenaPool(folder)
        return self._pool

    def _prepare(self, nbytes: int) -> None:
        """Make an arena with slots of `nbytes` in the background."""
        with self._lock:
            pool = self._current_pool()
            if pool is not None:
                pool.prepare(nbytes)


def _at_exit() -> None:
    for saver in list(_savers):
        saver.close()


atexit.register(_at_exit)
