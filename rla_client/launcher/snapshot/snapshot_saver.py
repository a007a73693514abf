"""Saver of snapshots through the agent.

It is safe from SIGKILL when `SnapshotSaver.offer` returns. Like checkpoints
(rla_client/checkpoint/saver.py), of which it uses arenas and spool, it travels in one of three ways: as a
*frame* of the stream (up to FRAME_BYTES, most small policies); by an *arena*, put together in a slot of
shared memory that a JOB frame names; as a *blob* (no slot that is large enough and free), a file in the
stream's blob folder, then the JOB frame. A thread fsyncs it afterwards; an arena of the right size is made
meanwhile, for the next one.

`offer` refuses when no agent has been there yet, too much waits for it or the spool is full; then the
snapshotter's own thread writes. Once the agent has taken snapshots of this stream, the next ones go the same
way, also when it is away for a while: their order is that of the stream, and of the footers.
"""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.checkpoint.blob_file import has_room, sync_later
from rla_client.checkpoint.saver import BACKLOG_MAX_BYTES
from rla_client.checkpoint.storage_copy import pin_memory
from rla_client.contract.job.job_source import ArenaSource, BlobSource
from rla_client.contract.job.snapshot_job import SNAPSHOT_KIND, SnapshotJob
from rla_client.contract.spool.protocol import FrameKind, pack
from rla_client.launcher.snapshot.snapshot_pickle import Pieces
from rla_client.stream.slot_sender import Slot, SlotSender

if TYPE_CHECKING:
    from rla_client.stream.outbox import Outbox


FRAME_BYTES = 256 << 10  # of a snapshot: some 100 us to write; the agent holds a few of them in memory
BACKLOG_MAX = 64  # of blobs: an agent does about 100 jobs a second


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
    slot: Slot | None = None

    @property
    def arrived(self) -> bool:
        """True once the agent has done with it; a frame's content does not say."""
        if self.slot is not None:
            return self.slot.arrived
        return self.blob is not None and not self.blob.exists()

    def read(self) -> bytes | None:
        """The file's content, while it is still here."""
        if self.content is not None or self.arrived:
            return self.content
        if self.slot is not None:
            return ctypes.string_at(self.slot.address, self.size)
        assert self.blob is not None
        with suppress(OSError):
            return self.blob.read_bytes()
        return None


class SnapshotSaver(SlotSender):
    """Hands snapshots of one run to the agent.

    Args:
        outbox: where jobs go; its lock is not held while bytes are copied.
        kind: the folder of the run that they go to, log or checkpoint.
    """

    def __init__(self, outbox: Outbox, kind: str) -> None:
        self.ways = {"frame": 0, "arena": 0, "blob": 0}
        self._kind = kind
        self._outbox = outbox
        super().__init__(outbox)

    def _reset(self) -> None:
        super()._reset()
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
                if not self.used and not self._outbox.agent_alive():
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
        return self._outbox.flush(timeout_s, media=False)

    def late(self, name: str | None) -> bytes | None:
        """Content of the last snapshot, if it is called `name` (None: in any case) and still here."""
        with self._lock:
            last = self._last
            if last is None or name not in {None, *last.save.names}:
                return None
            return last.read()

    def _as_frame(self, pieces: Pieces, save: Save) -> bool:
        content = pieces.to_bytes()
        for name in save.names:
            if not self._outbox.put(FrameKind.FILE, pack([self._kind, name, content]), time.time()):
                return False
        self._outbox.push()
        self._note(_Sent(save, pieces.size, content=content), "frame")
        return True

    def _in_arena(self, pieces: Pieces, save: Save) -> bool:
        if self._outbox.agent_alive() and not self._outbox.agent_alive(memory=True):
            return False  # the agent is outside of this container
        sent = self._send_in_slot(
            pieces.size, lambda slot: self._fill(slot, pieces), lambda source: self._send(save, source)
        )
        if sent is None:
            return False
        self._note(_Sent(save, pieces.size, slot=sent[0]), "arena")
        return True

    @staticmethod
    def _fill(slot: Slot, pieces: Pieces) -> ArenaSource:
        if pieces.on_device:
            pin_memory(slot.arena)
        pieces.copy_to(slot.address)
        return ArenaSource(slot.arena.name, slot.index, slot.number, pieces.size, ())

    def _as_blob(self, pieces: Pieces, save: Save) -> bool:
        blobs = self._outbox.blobs_folder
        waiting = [sent.size for sent in self._waiting if sent.blob is not None]
        full = len(waiting) >= BACKLOG_MAX or sum(waiting) >= BACKLOG_MAX_BYTES
        if blobs is None or full or pieces.size > self._outbox.blob_room or not has_room(blobs):
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

    def _send(self, save: Save, source: ArenaSource | BlobSource) -> bool:
        job = SnapshotJob(save.token, save.order, self._kind, save.names, source)
        return self._outbox.job(SNAPSHOT_KIND, job.encode())

    def _note(self, sent: _Sent, way: str) -> None:
        self.ways[way] += 1
        self._last = sent
        if sent.content is None:
            self._waiting.append(sent)
