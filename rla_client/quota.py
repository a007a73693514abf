"""Whether more may be spooled: free space of the disk, and the bytes of all streams of the machine.

The free space takes microseconds to ask for, the count a walk over all streams. So the count goes on
for COUNT_TURN_S a call, and what it found counts when it has been everywhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from rla_client.spool import spool_bytes, stream_bytes, stream_names

CHECK_BYTES = 1 << 20  # how much a stream may grow before free space is looked at again
TURN_BYTES = 64 << 10  # while a count is under way
COUNT_TURN_S = 0.0005  # of a training call, some dozen streams


class Quota:
    """The limits of one spool.

    Args:
        spool: folder of all streams of the machine.
        max_bytes: bound over all streams.
        min_free_fraction: part of the disk, 0…1, that the spool leaves free.
    """

    def __init__(self, spool: Path, max_bytes: int, min_free_fraction: float) -> None:
        self._spool = spool
        self._max_bytes = max_bytes
        self._min_free_fraction = min_free_fraction
        self._rest: Iterator[str] | None = None  # streams that the count under way has still to visit
        self._used = 0
        self._counted = 0  # segment of our own stream that the last count began in

    @property
    def counting(self) -> bool:
        """Whether a count is under way."""
        return self._rest is not None

    @property
    def look_after(self) -> int:
        """How many more bytes may be written before the next look."""
        return TURN_BYTES if self.counting else CHECK_BYTES

    def why_full(self) -> str | None:
        """Say why no more may be spooled, or None; counts everything now."""
        self._rest = None
        try:
            return self._why_disk_full() or self._why_too_much(spool_bytes(self._spool))
        except OSError as error:
            return self._unseen(error)

    def look(self, segment: int) -> str | None:
        """Say why no more may be spooled, or None; looks at the disk and goes on with a count.

        Args:
            segment: that our stream is in; a count begins once in each.
        """
        try:
            if self._rest is None and segment != self._counted:
                self._rest, self._used = iter(stream_names(self._spool)), 0
                self._counted = segment
            return self._why_disk_full() or self._count_on()
        except OSError as error:
            self._rest = None
            return self._unseen(error)

    def _count_on(self) -> str | None:
        until = time.monotonic() + COUNT_TURN_S
        for name in self._rest or ():
            self._used += stream_bytes(self._spool / name)
            if time.monotonic() > until:
                return None
        counted, self._rest = self._rest is not None, None
        return self._why_too_much(self._used) if counted else None

    def _why_disk_full(self) -> str | None:
        disk = os.statvfs(self._spool)
        if disk.f_bavail >= disk.f_blocks * self._min_free_fraction:
            return None
        return f"the disk of {self._spool} has only {disk.f_bavail * disk.f_frsize >> 20} MiB free"

    def _why_too_much(self, used: int) -> str | None:
        if used <= self._max_bytes:
            return None
        return f"the spool {self._spool} holds {used >> 20} MiB, its limit is {self._max_bytes >> 20} MiB"

    def _unseen(self, error: OSError) -> str:
        return f"the spool {self._spool} cannot be looked at: {error.strerror}"
