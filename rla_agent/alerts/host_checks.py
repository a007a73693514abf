"""What rules of the machine look at: free space, and whether replication has stopped.

`statvfs` on a server that hangs does not return, so disks are looked at in lanes
(rla_agent/pipeline/disks.py); the dispatcher takes what they last found. Replication is read from its ledger,
a local SQLite file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from rla_agent.pipeline.disks import Disk, Lanes, disk_of
from rla_agent.replicate.report import replication_status, stopped

DISK_LOOK_S = 10.0
REPLICATION_LOOK_S = 10.0
REARM = 1.1  # a disk is well again when it has so much more than the limit


class Disks:
    """Free bytes of folders; a file system that hangs leaves only its own unknown."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._lanes = Lanes("alert-disks")
        self._next = 0.0

    def look(self, folders: Mapping[str, int], now: float) -> dict[str, int]:
        """Free bytes as last seen, by folder; looks again in the background when that is due.

        Args:
            folders: folder → `st_dev` as it is known, which tells file systems apart.
            now: monotonic.
        """
        if now >= self._next:
            self._next = now + DISK_LOOK_S
            self._free = {folder: free for folder, free in list(self._free.items()) if folder in folders}
            by_disk: dict[Disk, list[str]] = {}
            for folder in sorted(folders):
                by_disk.setdefault(disk_of(folder, folders[folder]), []).append(folder)
            idle = {disk: some for disk, some in by_disk.items() if self._lanes.hung_s(disk) is None}
            self._lanes.run({disk: partial(self._see, some) for disk, some in idle.items()}, 0.0)
        return dict(self._free)

    def _see(self, folders: list[str]) -> None:
        for folder in folders:
            with suppress(OSError):
                disk = os.statvfs(folder)
                self._free[folder] = disk.f_bavail * disk.f_frsize


class Replica:
    """What of replication has stopped and waits for somebody."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._next = 0.0
        self._found: dict[str, str] = {}

    def look(self, now: float) -> dict[str, str]:
        """Subject → details; looked up each REPLICATION_LOOK_S."""
        if now < self._next:
            return self._found
        self._next = now + REPLICATION_LOOK_S
        self._found = stopped(replication_status(self._state))
        return self._found
