"""Holder of the agent's lock.

A process is signalled only while it has `agent.lock` open: its number may be another process's in another
container, or after a reboot.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.agent.places import Places
from rla_client.contract.process.syscalls import process_descriptor, signal_process

DRAIN_HOLDER = "drain"  # what the lock says of a process that serves nobody


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """Identity of a file."""
    return found.st_dev, found.st_ino


class HolderProcess:
    """The process that holds the lock, as a handle that never refers to another one."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    @classmethod
    def find(cls, places: Places) -> HolderProcess | None:
        """The process that the lock file names, while it has that file open; None where it has not.

        None means that it is invisible from here: it runs on the host, or in another container.
        """
        pid = read_holder(places).get("pid")
        if not isinstance(pid, int):
            return None
        try:
            descriptor = process_descriptor(pid)  # refuses what is not a number of a process
        except (OSError, OverflowError):
            return None
        if _has_open(pid, places.lock):
            return cls(pid, descriptor)
        os.close(descriptor)
        return None

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        with suppress(ProcessLookupError):
            signal_process(self._descriptor, signal.SIGTERM)

    def await_end(self, timeout_s: float) -> bool:
        """Whether it ended within that time."""
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def close(self) -> None:
        """Let go of the handle."""
        os.close(self._descriptor)


def visible_holder(places: Places) -> int | None:
    """Process id of the lock's holder, None where it is not a process that can be seen from here."""
    process = HolderProcess.find(places)
    if process is None:
        return None
    process.close()
    return process.pid


def _has_open(pid: int, path: Path) -> bool:
    try:
        wanted = identity_of(os.stat(path, follow_symlinks=False))
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        with suppress(OSError):
            link = f"/proc/{pid}/fd/{name}"
            if os.path.basename(os.readlink(link)) == path.name and identity_of(os.stat(link)) == wanted:
                return True
    return False


def read_holder(places: Places) -> dict[str, Any]:
    """The holder's record in the lock file; empty without one."""
    try:
        content = json.loads(places.lock.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def describe_holder(places: Places) -> str:
    """The holder in words."""
    holder = read_holder(places)
    if "pid" not in holder:
        return f"unknown process, lock {places.lock}"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(holder.get("since", 0))))
    return f"pid {holder['pid']} on {holder.get('host', '?')} since {since}, lock {places.lock}"
