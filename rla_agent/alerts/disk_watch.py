"""Watch over the free space of disks.

It uses lanes (outputs/file_system_lanes.py), since `statvfs` on a hung server does not return.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from rla_agent.outputs.file_system_lanes import Disk, Lanes, disk_of

DISK_LOOK_S = 10.0


class DiskWatch:
    """Free bytes of folders; a hung file system leaves only its own unknown."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._lanes = Lanes("alert-disks")
        self._next = 0.0

    def look(self, folders: Mapping[str, int], now: float) -> dict[str, int]:
        """Last known free bytes by folder; refreshed in the background when due.

        Args:
            folders: folder → known `st_dev`, which identifies its file system.
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
