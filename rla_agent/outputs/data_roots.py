"""Data roots and the items in them: which file system they lie on, whether they are there, their folders.

Folders are opened without following links. A root that is missed may be away (unmounted, moved) or the
item in it removed: only where its root is there does an item count as removed.

A call into a file system whose server hangs does not return. So nobody asks one which it is (`disk_of`), and
what one thread does for many roots is done in `Lanes`: work for a file system that still holds up its last
work is left out, and all others continue.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.spool.opening import Opening

Disk: TypeAlias = tuple[int, bytes]
_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def same_root(opening: Opening) -> bool:
    """Whether the data root that this agent sees is the one that the client meant.

    Device numbers are given anew at each boot: for a stream of before, the inode and the item's folder
    must do.
    """
    try:
        found = os.stat(opening.root)
    except OSError:
        return False
    if found.st_ino != opening.root_inode:
        return False
    if found.st_dev == opening.root_device:
        return True
    return opening.opened < boot_time() and os.path.isdir(opening.log_folder)


def item_is_there(opening: Opening) -> bool:
    """Whether the data root is the one that is meant, and the item's log folder is in it."""
    return _has_folder(opening) and same_root(opening)


def root_is_away(opening: Opening) -> bool:
    """Whether an item is missed because all of its data root is not there, or another one.

    One whose folder is found is not away: a file system that was mounted anew may have another device number.
    """
    return not same_root(opening) and not _has_folder(opening)


def _has_folder(opening: Opening) -> bool:
    try:
        os.close(open_folder(opening.root, opening.folders["log"]))
    except OSError:
        return False
    return True


def boot_time() -> float:
    """When this machine booted, Unix seconds; 0 when that cannot be found out."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)
    except OSError:
        return 0.0


def why_parked(root: str) -> str:
    """Say why streams of a data root wait; an item is given up only where its root is there."""
    if os.path.exists(root):
        return (
            f"the data root {root} is another folder here than for the training process (a container?); "
            "run an agent where it runs"
        )
    return f"the data root {root} is not here (not mounted, or hidden from the service)"


def temp_name(stream: str) -> str:
    """A fresh name for a temp file of a stream's output."""
    return f"{TEMP_PREFIX}{stream}-{os.urandom(4).hex()}"


def disk_of(root: str, device: int) -> Disk:
    """What tells the file system of a data root from others.

    Two roots on two file systems are always told apart where their mount points are in their paths, else by
    the device number, which may be given to another file system at the next boot.

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
        """For how long the last work for a file system has been under way; None when it is through."""
        thread, since = self._running.get(disk, (None, 0.0))
        return time.monotonic() - since if thread is not None and thread.is_alive() else None

    def run(self, work: Mapping[Disk, Callable[[], None]], wait_s: float) -> None:
        """Do work for file systems that have none under way; returns after `wait_s` at the latest."""
        self._running = {disk: one for disk, one in self._running.items() if one[0].is_alive()}
        now = time.monotonic()
        for disk, task in work.items():
            thread = threading.Thread(target=task, name=self._name, daemon=True)
            self._running[disk] = thread, now
            thread.start()
        for disk in work:
            self._running[disk][0].join(max(0.0, now + wait_s - time.monotonic()))
