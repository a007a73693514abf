"""Lanes of work, one for each file system.

A call into a file system whose server hangs does not return. So `disk_of` identifies a file system without a
call into it, and work of one thread for many roots runs in `Lanes`: a file system whose last work still hangs
is skipped, and all others continue.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

Disk: TypeAlias = tuple[int, bytes]
_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def disk_of(root: str, device: int) -> Disk:
    """Identity of a data root's file system.

    Roots on two file systems always differ where their mount points are in their paths, else by the device
    number, which another file system may get at the next boot.

    Args:
        root: its absolute path.
        device: `st_dev` as the client saw it.
    """
    path = os.fsencode(root)
    above = (mount for mount in _mounts() if path == mount or path.startswith(mount.rstrip(b"/") + b"/"))
    return device, max(above, key=len, default=b"/")


def _mounts() -> list[bytes]:
    try:
        with open(_MOUNTS, "rb") as file:
            points = [line.split(b" ", 5)[4] for line in file if line.count(b" ") > 4]  # noqa: PLR2004 - columns
    except OSError:
        return []
    return [_ESCAPED.sub(lambda match: bytes((int(match[1], 8),)), point) for point in points]


class Lanes:
    """One thread at most for each file system; for one caller's thread.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: dict[Disk, tuple[threading.Thread, float]] = {}

    def hung_s(self, disk: Disk) -> float | None:
        """Seconds that the last work for a file system has been running; None: it has ended."""
        thread, since = self._running.get(disk, (None, 0.0))
        return time.monotonic() - since if thread is not None and thread.is_alive() else None

    def run(self, work: Mapping[Disk, Callable[[], None]], wait_s: float) -> None:
        """Run work for file systems that are idle; returns after `wait_s` at the latest."""
        self._running = {disk: one for disk, one in self._running.items() if one[0].is_alive()}
        now = time.monotonic()
        for disk, task in work.items():
            thread = threading.Thread(target=task, name=self._name, daemon=True)
            self._running[disk] = thread, now
            thread.start()
        for disk in work:
            self._running[disk][0].join(max(0.0, now + wait_s - time.monotonic()))
