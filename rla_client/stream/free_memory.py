"""Estimate of memory that this process may still allocate.

All arenas of a process stay below a quarter of what the machine and its control group have free.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rla_client.contract.job.arena_layout import ARENA_FOLDER
from rla_client.stream.mapping import read_briefly

UNKNOWN_MEMORY_BYTES = 8 << 30  # where the system reports none
MEMORY_SHARE = 4  # arenas take at most a quarter of what is free


def memory_room() -> int:
    """Bytes that can be allocated: the least of free /dev/shm, memory and the control group's room."""
    return min(room for room in (_shm_free(), memory_free()) if room is not None)


def memory_free() -> int:
    """Free bytes of memory within the control group's room."""
    rooms = (_memory_available(), _cgroup_room())
    return min((room for room in rooms if room is not None), default=UNKNOWN_MEMORY_BYTES)


def _shm_free() -> int:
    try:
        found = os.statvfs(ARENA_FOLDER)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _memory_available() -> int | None:
    try:
        for line in read_briefly("/proc/meminfo").splitlines():
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return None


def _cgroup_room() -> int | None:
    """Room of the tightest control group above this process; None without a limit."""
    try:
        lines = os.fsdecode(read_briefly("/proc/self/cgroup")).splitlines()
    except (OSError, ValueError):
        return None
    rooms = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            rooms += _rooms_above(Path("/sys/fs/cgroup"), path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            rooms += _rooms_above(Path("/sys/fs/cgroup/memory"), path, *names)
    return min(rooms, default=None)


def _rooms_above(top: Path, path: str, limit_name: str, used_name: str) -> list[int]:
    rooms = []
    folder = top / path.lstrip("/")
    while True:
        with suppress(OSError, ValueError):
            limit = int(read_briefly(f"{folder}/{limit_name}"))
            used = int(read_briefly(f"{folder}/{used_name}"))
            rooms.append(max(limit - used, 0))
        if folder in {top, folder.parent}:
            return rooms
        folder = folder.parent
