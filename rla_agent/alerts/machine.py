"""What rules of the machine look at: free space, and whether replication has stopped.

`statvfs` on a server that hangs does not return, so disks are looked at in a thread of their own; the
desk takes what it last found. Replication is read from its ledger, a local SQLite file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

from rla_agent.replicate.report import replication_status

DISK_LOOK_S = 10.0
REPLICATION_LOOK_S = 10.0
REARM = 1.1  # a disk is well again when it has so much more than the limit


class Disks:
    """Free bytes of folders."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._next = 0.0

    def look(self, folders: Iterable[str], now: float) -> dict[str, int]:
        """Free bytes as last seen, by folder; looks again in the background when that is due."""
        if now >= self._next and (self._thread is None or not self._thread.is_alive()):
            self._next = now + DISK_LOOK_S
            wanted = sorted(set(folders))
            self._thread = threading.Thread(target=self._see, args=(wanted,), name="alert-disks", daemon=True)
            self._thread.start()
        return dict(self._free)

    def _see(self, folders: list[str]) -> None:
        found: dict[str, int] = {}
        for folder in folders:
            try:
                disk = os.statvfs(folder)
            except OSError:
                continue
            found[folder] = disk.f_bavail * disk.f_frsize
        self._free = found


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
        status = replication_status(self._state)
        found: dict[str, str] = {}
        for target in status["targets"]:
            if target.get("health") == "blocked":
                mend = target.get("mend") or ""
                found[str(target["target"])] = f"{target.get('reason') or 'has stopped'}\n{mend}".strip()
        if status["parked_files"]:
            first = status["parked"][0]
            lines = [f"{status['parked_files']} files do not go to the master, the first: {first['path']}"]
            lines += [first["reason"], first["mend"], "see: rla-agent replicate status"]
            found["files"] = "\n".join(line for line in lines if line)
        self._found = found
        return found
