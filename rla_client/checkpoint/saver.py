"""Asynchronous saver of checkpoints.

The training step waits for one copy of the bytes; the agent writes the file. `CheckpointSaver.save` takes one
of three paths, each of which leaves the content safe from SIGKILL of this process when it returns:

1. *arena* (an agent is there, a slot of shared memory is large enough and free): skeleton and
   storages are copied into the slot, a JOB frame names them. The agent writes the `.pt`.
2. *blob* (no agent, no such slot): the same bytes go to a file in the stream's blob folder, then the
   JOB frame. A thread fsyncs the file afterwards. An arena of the right size is made meanwhile.
3. *direct* (the spool has no room, BACKLOG_MAX_BYTES of blobs wait in it because no agent takes them away,
   or no job may be so large): torch.save to a temp name beside the final file, fsync, rename, fsync of
   the folder. This process then applies retention itself.

If none works the checkpoint is counted in `lost` with a warning; only wrong arguments raise.

A signal handler that saves while its thread is saving takes the second path; other threads wait for
one copy. A forked child starts with no arena; its saves go to its own stream.
"""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rla_client.checkpoint.blob_file import has_room, read_at, sync_later, write_blob
from rla_client.checkpoint.direct_write import NotWrittenError, write_final
from rla_client.checkpoint.listing import find_checkpoint, list_checkpoints
from rla_client.checkpoint.loading import load_file, restore
from rla_client.checkpoint.pickling import capture
from rla_client.checkpoint.storage_copy import copy_storages, pin_memory
from rla_client.checkpoint.storage_table import Captured
from rla_client.contract.checkpoint.checkpoint_retention import Mode, Retention
from rla_client.contract.checkpoint.stamp import Stamp, read_stamp
from rla_client.contract.errors import ArgumentError, NoCheckpointError
from rla_client.contract.job.checkpoint_job import CHECKPOINT_KIND, MAX_METRICS, CheckpointJob, final_name
from rla_client.contract.job.job_fields import MAX_TEXT
from rla_client.contract.job.job_source import (
    MAX_SKELETON_BYTES,
    MAX_STORAGES,
    ArenaSource,
    RawBlobSource,
    storage_offsets,
)
from rla_client.stream.rare_warnings import warn_rarely
from rla_client.stream.slot_sender import Slot, SlotSender
from rla_client.stream.values import whole_number

if TYPE_CHECKING:
    from rla_client.stream.outbox import Outbox


FIRST_SLOT_BYTES = 8 << 20  # most policies fit; a larger one costs its first save a torch.save
BACKLOG_MAX_BYTES = 512 << 20  # of blobs that wait for an agent; the rest of the spool is for rows
_log = logging.getLogger("rla_client")


@dataclass(frozen=True, slots=True)
class _Pending:
    """A save whose file may not exist yet."""

    stamp: Stamp
    source: ArenaSource | RawBlobSource
    blob: Path | None = None
    slot: Slot | None = None

    @property
    def size(self) -> int:
        """Bytes that wait in the spool."""
        return self.source.size if isinstance(self.source, RawBlobSource) else 0

    @property
    def arrived(self) -> bool:
        """True once the agent has finished it."""
        if self.slot is not None:
            return self.slot.arrived
        return self.blob is not None and not self.blob.exists()


class CheckpointSaver(SlotSender):
    """Saves and loads the checkpoints of one run.

    Args:
        outbox: where jobs go; its lock is not held while bytes are copied.
        checkpoint_dir: the run's checkpoint folder.
        max_to_keep: newest checkpoints to keep of each name; None keeps all.
        run: names the run in each file, so that retention leaves files of other runs alone.
    """

    def __init__(
        self, outbox: Outbox, checkpoint_dir: Path, max_to_keep: int | None = None, *, run: str = ""
    ) -> None:
        self.lost = 0
        self.ways = {"arena": 0, "blob": 0, "direct": 0}
        self._folder = Path(checkpoint_dir)
        kept = None if max_to_keep is None else whole_number(max_to_keep, "max_to_keep")
        self._retention = Retention(max_to_keep=kept)
        self._run = run
        self._outbox = outbox
        self._last_order = 0
        self._warned: dict[str, float] = {}
        self._problem = ""
        super().__init__(outbox)
        self._prepare(FIRST_SLOT_BYTES)

    def _reset(self) -> None:
        super()._reset()
        self._pending: list[_Pending] = []

    @property
    def retention(self) -> Retention:
        """Retention rules of each name."""
        return self._retention

    def come_after(self, order: int) -> None:
        """Order all saves from now on after that of this order, whatever the clock says."""
        self._last_order = max(self._last_order, order)

    def keep_best(self, metric: str, mode: Mode = "min", k: int = 1) -> None:
        """Besides `max_to_keep`, keep the `k` checkpoints with the best `metric` at their save."""
        self._retention = replace(self._retention, keep_best=best_rule(metric, mode, k))

    def keep_every(self, n: int) -> None:
        """Besides `max_to_keep`, keep checkpoints whose time-step is a multiple of `n`."""
        self._retention = replace(self._retention, keep_every=whole_number(n, "keep_every"))

    def save(
        self,
        content: object,
        name: str = "checkpoint",
        time_step: int = 0,
        metrics: Mapping[str, float] | None = None,
        order: int | None = None,
    ) -> None:
        """Save `content` as `<name>_<time_step>.pt`; on return it survives SIGKILL of this process.

        Args:
            content: tensors, arrays, containers of them, or anything picklable.
            name: of the series; each series has its own retention.
            time_step: the run's clock.
            metrics: values that `keep_best` compares; NaN is worst.
            order: of `next_order`, where something beside the checkpoint names it.

        Raises:
            ArgumentError: the name cannot be a file name, or the content cannot be pickled.
            ShardedContentError: of a tensor in it this rank holds a part.
        """
        stamp = self._stamp(name, time_step, metrics or {}, self.next_order() if order is None else order)
        captured = capture(content)
        if len(captured.storages) > MAX_STORAGES or len(captured.skeleton) > MAX_SKELETON_BYTES:
            taken = False  # no agent takes such a job
        elif self._inside == threading.get_ident():
            taken = self._save_as_blob(captured, stamp)
        else:
            with self._lock:
                self._inside = threading.get_ident()
                try:
                    taken = self._save_to_arena(captured, stamp)
                finally:
                    self._inside = None
        if not taken and not self._save_directly(content, stamp):
            self._lose(stamp)

    def load(
        self,
        name: str = "checkpoint",
        index: int | None = None,
        *,
        map_location: object = None,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """The checkpoint of time-step `index`, or the one that was saved last: (time-step, content).

        A save of this process counts as soon as `save` has returned: until its file exists, the content comes
        from shared memory or the spool.

        Args:
            name: the series.
            index: a time-step.
            map_location: a device for all tensors; by default they go where they were, or to the
                CPU if that device is not there.
            trust: load a file with objects also where this run did not write it here.

        Raises:
            NoCheckpointError: there is none.
            UntrustedCheckpointError: it holds objects, is not this run's own, and `trust` is False.
        """
        with self._lock:
            unwritten = self._unwritten(name, index)
            if unwritten is not None and unwritten.stamp.order > self._newest_order(name, index):
                with suppress(NoCheckpointError):  # its file arrived just now
                    return unwritten.stamp.time_step, self._load_unwritten(unwritten, map_location)
        step, path = find_checkpoint(self._folder, name, index, autostart=self._outbox.autostart)
        return step, load_file(path, trust=trust, run=self._run, map_location=map_location)

    def _save_to_arena(self, captured: Captured, stamp: Stamp) -> bool:
        """Copy into a slot, else into a blob; False: neither took it."""
        if not self._outbox.agent_alive(memory=True):
            return self._save_as_blob(captured, stamp)
        offsets, needed = storage_offsets(len(captured.skeleton), captured.sizes)
        sent = self._send_in_slot(
            needed,
            lambda slot: self._fill(slot, captured, offsets),
            lambda source: self._send(CheckpointJob(stamp, source, self._retention, sys.byteorder)),
        )
        if sent is None:
            taken = self._save_as_blob(captured, stamp)
            self._prepare(needed)  # not earlier: making it would compete with the writing
            return taken
        slot, source = sent
        self._note_saved(_Pending(stamp, source, slot=slot), "arena")
        return True

    @staticmethod
    def _fill(slot: Slot, captured: Captured, offsets: list[int]) -> ArenaSource:
        base = slot.address
        if captured.on_device:
            pin_memory(slot.arena)
        skeleton = len(captured.skeleton)
        ctypes.memmove(base, captured.skeleton, skeleton)
        copy_storages(captured.storages, [base + offset for offset in offsets])
        return ArenaSource(slot.arena.name, slot.index, slot.number, skeleton, tuple(captured.sizes))

    def _save_as_blob(self, captured: Captured, stamp: Stamp) -> bool:
        offsets, needed = storage_offsets(len(captured.skeleton), captured.sizes)
        blobs = self._outbox.blobs_folder
        waiting = sum(entry.size for entry in self._pending if not entry.arrived)
        full = waiting >= BACKLOG_MAX_BYTES or needed > self._outbox.blob_room
        if blobs is None or full or not has_room(blobs):
            return False
        blob = blobs / f"{stamp.token}.raw"
        try:
            size = write_blob(captured, [*offsets, needed], stamp.token.encode("ascii"), blob)
        except BaseException as error:  # Ctrl-C, too, leaves no half of one
            with suppress(OSError):
                blob.unlink()
            if not isinstance(error, OSError):
                raise
            self._problem = str(error)
            return False
        source = RawBlobSource(blob.name, size, len(captured.skeleton), tuple(captured.sizes))
        if not self._send(CheckpointJob(stamp, source, self._retention, sys.byteorder)):
            with suppress(OSError):
                blob.unlink()
            return False  # the spool is full; the run's own disk may not be
        self._note_saved(_Pending(stamp, source, blob=blob), "blob")
        sync_later(blob)
        return True

    def _save_directly(self, content: object, stamp: Stamp) -> bool:
        if not has_room(self._folder):
            return False
        try:
            write_final(content, self._folder, stamp, self._retention)
        except NotWrittenError as error:
            self._problem = str(error)
            return False
        self._note_saved(None, "direct")
        return True

    def next_order(self) -> int:
        """The order of the next save, later than that of any before."""
        self._last_order = max(self._last_order + 1, time.time_ns())
        return self._last_order

    def _stamp(self, name: str, time_step: int, metrics: Mapping[str, float], order: int) -> Stamp:
        if not isinstance(name, str):
            raise ArgumentError(f"a checkpoint's name must be text, got {type(name).__name__}")
        try:
            step = int(time_step)
            values = {str(key): float(value) for key, value in metrics.items()}
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"time_step and metrics must be numbers: {error}") from error
        final_name(name, step)
        best = self._retention.keep_best
        named = [best[0]] if best is not None and best[0] in values else []
        first = [*named, *values][:MAX_METRICS]  # a row may have thousands of keys; the one that counts is in
        values = {key: values[key] for key in first if len(key) <= MAX_TEXT}
        return Stamp(secrets.token_hex(8), order, self._run, name, step, values)

    def _send(self, job: CheckpointJob) -> bool:
        return self._outbox.job(CHECKPOINT_KIND, job.encode())

    def _note_saved(self, entry: _Pending | None, way: str) -> None:
        with self._lock:
            self.ways[way] += 1
            self._pending = [old for old in self._pending if not old.arrived]
            if entry is not None:
                self._pending.append(entry)

    def _unwritten(self, name: str, index: int | None) -> _Pending | None:
        """Of the own saves that have no file yet, the last one."""
        unwritten = [
            entry
            for entry in self._pending
            if entry.stamp.name == name and index in {None, entry.stamp.time_step} and not entry.arrived
        ]
        return max(unwritten, key=lambda entry: entry.stamp.order, default=None)

    def _newest_order(self, name: str, index: int | None) -> int:
        """Order of the newest file; -1 where there is none, or it was not written by us."""
        found = [path for step, path in list_checkpoints(self._folder, name) if index in {None, step}]
        stamp = read_stamp(found[-1]) if found else None
        return -1 if stamp is None else stamp.order

    @staticmethod
    def _load_unwritten(entry: _Pending, map_location: object) -> object:
        source = entry.source
        offsets, _ = storage_offsets(source.skeleton_bytes, source.sizes)
        if entry.slot is not None:
            base = entry.slot.address

            def copied(key: int, size: int) -> bytearray:
                return bytearray((ctypes.c_ubyte * size).from_address(base + offsets[key]))

            return restore(ctypes.string_at(base, source.skeleton_bytes), copied, map_location)
        assert entry.blob is not None
        try:
            descriptor = os.open(entry.blob, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NoCheckpointError(f"the blob {entry.blob} is gone") from error
        with open(descriptor, "rb") as file:

            def read(key: int, size: int) -> bytearray:
                return read_at(file, offsets[key], size)

            return restore(bytes(read_at(file, 0, source.skeleton_bytes)), read, map_location)

    def _lose(self, stamp: Stamp) -> None:
        self.lost += 1
        warn_rarely(
            self._warned,
            "lost",
            "checkpoint %s_%d was not saved (%d so far), neither in the spool nor in %s: no room; %s",
            stamp.name,
            stamp.time_step,
            self.lost,
            self._folder,
            self._problem,
        )
        self._outbox.lose(
            CHECKPOINT_KIND, final_name(stamp.name, stamp.time_step), f"no room; {self._problem}"
        )


def best_rule(metric: str, mode: str, k: int) -> tuple[str, Mode, int]:
    """Check the arguments of `keep_best`.

    Raises:
        ArgumentError: they are invalid.
    """
    if mode not in {"min", "max"} or not isinstance(metric, str):
        raise ArgumentError(f"keep_best takes a metric's name and 'min' or 'max'; got {(metric, mode)}")
    return metric, cast("Mode", mode), whole_number(k, "k")
