"""The way of a snapshot through the agent: safe from SIGKILL when `offer` returns, written by the agent.

Like checkpoints (rla_client/checkpoint.py), of which it uses arenas and spool:

*frame* (up to FRAME_BYTES, most small policies): the content travels in the stream itself.
*arena*: the content is put together in a slot of shared memory, a JOB frame names it.
*blob* (no slot that is large enough and free): a file in the stream's blob folder, then the JOB frame. A
    thread fsyncs it afterwards; an arena of the right size is made meanwhile, for the next one.

`offer` refuses when no agent has been there yet, too much waits for it or the spool is full; then the
snapshotter's own thread writes. Once the agent has taken snapshots of this stream, the next ones go the
same way, also when it is away for a while: their order is that of the stream, and of the footers.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.arena import Arena, ArenaPool
from rla_client.checkpoint_fallback import has_room, sync_later
from rla_client.checkpoint_job import SLOT_BUSY, ArenaSource, BlobSource
from rla_client.experiment.snapshot_codec import Pieces
from rla_client.protocol import FrameKind, pack
from rla_client.snapshot_job import JOB_KIND, SnapshotJob
from rla_client.storage_copy import pin_memory

if TYPE_CHECKING:
    from rla_client.outbox import Outbox

FRAME_BYTES = 256 << 10  # some 100 us to write; the agent holds a few of them in memory
BACKLOG_MAX_BYTES = 512 << 20  # of blobs that wait for an agent; the rest of the spool is for rows
BACKLOG_MAX = 64  # of blobs: an agent does about 100 jobs a second

_savers: weakref.WeakSet[SnapshotSaver] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Save:
    """Which snapshot this is: see SnapshotJob."""

    token: str
    order: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A snapshot whose file may not be there yet."""

    save: Save
    size: int
    content: bytes | None = None
    blob: Path | None = None
    arena: Arena | None = None
    slot: int = 0
    number: int = 0

    @property
    def arrived(self) -> bool:
        """True once the agent has done with it; a frame's content does not say."""
        if self.arena is not None:
            return self.arena.closed or self.arena.header(self.slot) != (SLOT_BUSY, self.number)
        return self.blob is not None and not self.blob.exists()

    def read(self) -> bytes | None:
        """The file's content, while it is still here."""
        if self.content is not None or self.arrived:
            return self.content
        if self.arena is not None:
            return ctypes.string_at(self.arena.slot_address(self.slot), self.size)
        assert self.blob is not None
        with suppress(OSError):
            return self.blob.read_bytes()
        return None


class SnapshotSaver:
    """Hands snapshots of one run to the agent.

    Args:
        outbox: where jobs go; its lock is not held while bytes are copied.
        kind: the folder of the run that they go to, log or checkpoint.
    """

    def __init__(self, outbox: Outbox, kind: str) -> None:
        self.ways = {"frame": 0, "arena": 0, "blob": 0}
        self.outbox = outbox
        self._kind = kind
        self._number = 0
        self._copy_s = 0.0
        self._reset()
        _savers.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._inside: int | None = None
        self._pool: ArenaPool | None = None
        self._waiting: list[_Sent] = []
        self._last: _Sent | None = None

    @property
    def used(self) -> bool:
        """Whether the agent has been given a snapshot."""
        return self._last is not None

    def offer(self, pieces: Pieces, save: Save) -> bool:
        """Take a snapshot over. On True it survives SIGKILL; on False nothing has happened.

        Args:
            pieces: its content; what it refers to may change afterwards.
            save: its name, and its place among the others.
        """
        if self._inside == threading.get_ident():  # a signal handler that saves while we do
            return False
        with self._lock:
            self._inside = threading.get_ident()
            try:
                if not self.used and not self.outbox.agent_alive():
                    return False
                self._waiting = [sent for sent in self._waiting if not sent.arrived]
                if pieces.size <= FRAME_BYTES:
                    return self._as_frame(pieces, save)
                if self._in_arena(pieces, save):
                    return True
                taken = self._as_blob(pieces, save)
                self._prepare(pieces.size)  # not before: making it would compete with the writing
                return taken
            finally:
                self._inside = None

    def wait(self, timeout_s: float | None) -> bool:
        """Whether all that was taken over is in its files within `timeout_s`."""
        if not self.used:
            return True
        return self.outbox.flush(timeout_s)

    def late(self, name: str | None) -> bytes | None:
        """Content of the last snapshot, if it is called `name` (None: in any case) and still here."""
        with self._lock:
            last = self._last
            if last is None or name not in {None, *last.save.names}:
                return None
            return last.read()

    def close(self) -> None:
        """Give shared memory back. What the agent has not read yet, it reads and then removes."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    # -- the three ways -----------------------------------------------------------------------

    def _as_frame(self, pieces: Pieces, save: Save) -> bool:
        content = pieces.to_bytes()
        for name in save.names:
            if not self.outbox.put(FrameKind.FILE, pack([self._kind, name, content]), time.time()):
                return False
        self.outbox.push()
        self._note(_Sent(save, pieces.size, content=content), "frame")
        return True

    def _in_arena(self, pieces: Pieces, save: Save) -> bool:
        pool = self._current_pool()
        if pool is None or (self.outbox.agent_alive() and not self.outbox.agent_alive(memory=True)):
            return False  # the agent is outside of this container
        self._number += 1
        number = self._number
        try:
            claimed = pool.claim(pieces.size, number, patience_s=self._copy_s)
            if claimed is None:
                return False
            arena, slot = claimed
            started = time.perf_counter()
            if pieces.on_device:
                pin_memory(arena)
            pieces.copy_to(arena.slot_address(slot))
            self._copy_s = time.perf_counter() - started
        except BaseException:
            pool.give_back(number)
            raise
        try:
            taken = self._send(save, ArenaSource(arena.name, slot, number, pieces.size, ()))
        except BaseException:
            pool.retire()  # Ctrl-C in the middle: the frame may be there or not, so the slot is not ours
            raise
        if not taken:
            pool.give_back(number)
            return False
        self._note(_Sent(save, pieces.size, arena=arena, slot=slot, number=number), "arena")
        return True

    def _as_blob(self, pieces: Pieces, save: Save) -> bool:
        blobs = self.outbox.blobs_folder
        waiting = [sent.size for sent in self._waiting if sent.blob is not None]
        full = len(waiting) >= BACKLOG_MAX or sum(waiting) >= BACKLOG_MAX_BYTES
        if blobs is None or full or not has_room(blobs):
            return False
        blob = blobs / f"{save.token}.pkl"
        try:
            with open(blob, "xb") as file:
                pieces.write_to(file)
        except OSError:
            with suppress(OSError):
                blob.unlink()
            return False
        if not self._send(save, BlobSource(blob.name, pieces.size)):
            with suppress(OSError):
                blob.unlink()
            return False
        self._note(_Sent(save, pieces.size, blob=blob), "blob")
        sync_later(blob)
        return True

    # -- small things -------------------------------------------------------------------------

    def _send(self, save: Save, source: ArenaSource | BlobSource) -> bool:
        job = SnapshotJob(save.token, save.order, self._kind, save.names, source)
        return self.outbox.job(JOB_KIND, job.encode())

    def _note(self, sent: _Sent, way: str) -> None:
        self.ways[way] += 1
        self._last = sent
        if sent.content is None:
            self._waiting.append(sent)

    def _current_pool(self) -> ArenaPool | None:
        folder = self.outbox.stream_folder
        if folder is None:
            return None
        if self._pool is None or self._pool.stream_folder != folder:
            if self._pool is not None:
                self._pool.close()
            self._pool = ArenaPool(folder)
        return self._pool

    def _prepare(self, nbytes: int) -> None:
        pool = self._current_pool()
        if pool is not None:
            pool.prepare(nbytes)

    def after_fork_in_child(self) -> None:
        """Forget the parent's arenas and snapshots without touching them."""
        if self._pool is not None:
            self._pool.forget_in_child()
        self._reset()


def _after_fork_in_child() -> None:
    for saver in list(_savers):
        saver.after_fork_in_child()


def _at_exit() -> None:
    for saver in list(_savers):
        saver.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
