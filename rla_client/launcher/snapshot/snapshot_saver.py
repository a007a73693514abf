"""Saver of snapshots through the agent.

A snapshot survives SIGKILL once `SnapshotSaver.offer` has returned. It uses the arenas and the spool of
checkpoints (rla_client/checkpoint/saver.py), and is sent in one of three ways: as a *frame* of the stream
(up to FRAME_BYTES, for most small policies); by an *arena*, assembled in a slot of shared memory that a
JOB frame names; or, if no slot is large enough and free, as a *blob*, a file in the stream's blob folder
that a JOB frame names. A thread fsyncs the blob afterwards, and an arena of the right size is made for the
next snapshot.

`offer` refuses if no agent has run yet, too many bytes wait for it or the spool is full; then the
snapshotter's own thread writes. Once the agent has received a snapshot of this stream, it gets the next
ones, too, even while it does not run, so that their order is that of the stream and of the footers.
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
    """Identity of a snapshot; see SnapshotJob."""

    token: str
    order: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A sent snapshot, perhaps not yet written."""

    save: Save
    size: int
    content: bytes | None = None
    blob: Path | None = None
    slot: Slot | None = None

    @property
    def arrived(self) -> bool:
        """Whether the agent has read it; False for a frame."""
        if self.slot is not None:
            return self.slot.arrived
        return self.blob is not None and not self.blob.exists()

    def read(self) -> bytes | None:
        """Content of the file; None if only the agent has it."""
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
        outbox: outbox of the jobs; its lock is not held while bytes are copied.
        kind: folder of the run for the snapshots, log or checkpoint.
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
        """Whether a snapshot was sent."""
        return self._last is not None

    def offer(self, pieces: Pieces, save: Save) -> bool:
        """Send a snapshot. It survives SIGKILL if True is returned; False means that nothing was sent.

        Args:
            pieces: its content; the pickled objects may change afterwards.
            save: its names and its order.
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
        """Wait until all sent snapshots are written; False after `timeout_s`."""
        if not self.used:
            return True
        return self._outbox.flush(timeout_s, media=False)

    def late(self, name: str | None) -> bytes | None:
        """Content of the last snapshot, if it has this name (None: any name) and only if it is still here."""
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
