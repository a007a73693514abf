"""Quota of a run in the spool.

`free` is the room below `spool_max_bytes`, or above the disk's reserve where that is less. A run may have at
most a multiple of it: SHARE_ROWS times for rows, less for texts, once for media; its media and texts do not
count against its rows. No sum over all runs reaches the limit, without any communication between them.

All files of all streams count: segments, blobs, and leftovers of dead writers. A count is a walk over the
streams, COUNT_TURN_S a call. A process counts again once it has written half the free bytes, divided by the
number of active streams; and RECOUNT_S after a refusal. All streams of one run, by their opening frames,
share its quota; a process reads each opening frame once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from rla_client.contract.spool.opening import stream_opening
from rla_client.contract.spool.segments import stream_names, stream_size

SHARE_MEDIA = 1  # of the free bytes; one run alone then gets 1/2 of the limit
SHARE_TEXT = 3  # 3/4
SHARE_ROWS = 16  # 16/17
CHECK_BYTES = 4 << 20  # a process writes at most so much before it counts again
TURN_BYTES = 64 << 10  # and so much between the turns of a count
COUNT_TURN_S = 0.0005  # taken from a training call, for some dozen streams
RECOUNT_S = 1.0
FRESH_S = 0.01  # between counts before payloads, at least; own bytes in between are bounded by the part
COUNT_SHARE = 0.01  # of the time goes into these counts, unless one takes over COUNT_SHARE * RECOUNT_S
WRITTEN_S = 60.0  # a stream without writes for so long does not count as active
_runs: dict[Path, dict[str, object]] = {}  # by spool: run of each stream that this process counted


class Quota:
    """One process's view of the quota.

    Args:
        spool: folder of all streams of the machine.
        max_bytes: bound over all streams.
        min_free_fraction: part of the disk, 0…1, that the spool leaves free.
    """

    def __init__(self, spool: Path, max_bytes: int, min_free_fraction: float) -> None:
        self._spool = spool
        self._max_bytes = max_bytes
        self._min_free_fraction = min_free_fraction
        self._runs = _runs.setdefault(spool, {})
        self.begin("", None)

    def begin(self, stream: str, run: object) -> None:
        """Set this process's stream and its run."""
        self._stream, self._run = stream, run
        self._rest: Iterator[str] | None = None  # streams that the count under way has still to visit
        self._used = self._own = self._blobs = 0  # of all streams, of our run's, of their blobs, as counted
        self._counted, self._written = [0, 0, 0], 0  # the same, by the count under way; streams written to
        self._disk_left = self._max_bytes
        self._spent = self._frames = 0  # of this process: since the last count; in all, without its rows
        self._part = 0  # bytes that it may spend before the next count
        self._refused = False
        self._last_count, self._count_took = float("-inf"), 0.0  # monotonic, seconds
        self._unseen: str | None = None

    @property
    def look_after(self) -> int:
        """Bytes that may be written before the next check."""
        until_count = TURN_BYTES if self._rest is not None else self._part - self._spent
        return max(min(self.room(SHARE_ROWS), until_count), 0)

    def spend(self, size: int, no_rows: int = 0) -> None:
        """Count bytes of this process (negative: removed), `no_rows` of them in frames other than rows."""
        self._spent += size
        self._frames += no_rows

    @property
    def overspent(self) -> bool:
        """Whether this process wrote more than its part since the last count."""
        return self._spent > self._part

    @property
    def stale(self) -> bool:
        """Whether a count is due before the write of a payload."""
        fresh = min(max(FRESH_S, self._count_took / COUNT_SHARE), RECOUNT_S)
        return self.overspent or time.monotonic() > self._last_count + fresh

    def room(self, share: int) -> int:
        """Bytes that our run may still add as records of this share; negative where it is exceeded.

        Where the spool cannot be read (it was renamed, say), the last count applies to rows.
        """
        if self._unseen is not None and share != SHARE_ROWS:
            return -1
        free = min(self._max_bytes - self._used, self._disk_left) - self._spent
        own = self._own + self._spent
        if share == SHARE_ROWS:
            own = max(own - self._blobs - self._frames, 0)
        return (share * free - own) // (share + 1)

    def why_full(self, share: int, size: int = 0) -> str | None:
        """Reason why `size` more bytes of this share may not be spooled, or None."""
        if size <= self.room(share):
            return None
        self._refused = True
        if self._unseen is not None:
            return self._unseen
        used, left = self._used + self._spent, self._disk_left - self._spent
        if left < self._max_bytes - used:
            return f"the disk of {self._spool} has only {max(left, 0) >> 20} MiB left above its reserve"
        whole = f"the spool {self._spool} holds {used >> 20} MiB, its limit is {self._max_bytes >> 20} MiB"
        return f"{whole}, of which {self._own + self._spent >> 20} MiB are this run's"

    def look(self, *, count: bool = False) -> None:
        """Check the disk; continue a count, or begin a due one; with `count`, count all now."""
        began = time.monotonic()
        until = float("inf") if count else began + COUNT_TURN_S
        if count:
            self._rest = None
        try:
            disk = os.statvfs(self._spool)
            left = disk.f_bavail - disk.f_blocks * self._min_free_fraction
            self._disk_left = int(left * disk.f_frsize) + self._spent
            due = self._spent >= self._part or (
                self._refused and time.monotonic() >= self._last_count + RECOUNT_S
            )
            if self._rest is None and (due or count):
                names = stream_names(self._spool)
                for gone in set(self._runs).difference(names):
                    self._runs.pop(gone, None)
                self._rest = iter(names)
                self._counted, self._written = [0, 0, 0], 0
                self._refused = False
            self._count_on(until)
            if count:
                self._count_took = self._last_count - began
            self._unseen = None
        except OSError as error:
            self._rest = None
            self._unseen = f"the spool {self._spool} cannot be read: {error.strerror}"

    def _count_on(self, until: float) -> None:
        if self._rest is None:
            return
        for name in self._rest:
            if name != self._stream:
                self._visit(name)
            if time.monotonic() > until:
                return
        if self._stream:
            self._visit(self._stream)  # last: it includes our writes during the count
        self._rest = None
        self._disk_left -= self._spent
        self._used, self._own, self._blobs = self._counted
        self._spent = 0
        self._last_count = time.monotonic()
        half = min(self._max_bytes - self._used, self._disk_left) // 2
        self._part = min(CHECK_BYTES, max(half // max(self._written, 1), TURN_BYTES))

    def _visit(self, name: str) -> None:
        size, blobs, changed = stream_size(self._spool / name)
        self._counted[0] += size
        self._written += time.time() - changed < WRITTEN_S
        if name == self._stream or (self._run is not None and self._run_of(name) == self._run):
            self._counted[1] += size
            self._counted[2] += blobs

    def _run_of(self, name: str) -> object:
        if name not in self._runs and (opening := stream_opening(self._spool / name)) is not None:
            self._runs[name] = opening.run
        return self._runs.get(name)
