"""The agent's lock: one agent per state folder.

An open-file-description lock on `agent.lock`, taken before the sockets are bound and held for
life. The file's content names the holder; only the lock counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import time
from contextlib import suppress
from typing import Any

from rla_client.autostart import shared_memory_device
from rla_client.errors import AgentRunningError
from rla_client.places import Places
from rla_client.protocol import PROTOCOL_VERSION

TAKE_OVER_S = 25.0  # an agent that drains ends within 20
POLL_S = 0.025
_FLOCK = struct.Struct("hhqqi")


class AgentLock:
    """Holds the lock until `release` or the end of the process."""

    def __init__(self, places: Places, service: str = "") -> None:
        """Take the lock.

        Args:
            places: whose lock.
            service: `user` or `system` when a systemd unit runs this agent.

        Raises:
            AgentRunningError: another agent holds it.
            OSError: the file cannot be opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(places.lock, flags, 0o600)
        try:
            request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, request)
        except OSError as error:
            os.close(self._descriptor)
            raise AgentRunningError(describe_holder(places)) from error
        content = {
            "pid": os.getpid(),
            "since": time.time(),
            "host": os.uname().nodename,
            "runtime": str(places.runtime),
            "service": service,
            "protocol": PROTOCOL_VERSION,
            "shm": shared_memory_device(),
        }
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(content).encode(), 0)

    def release(self) -> None:
        """Let go."""
        os.close(self._descriptor)


def take_lock(places: Places, service: str) -> AgentLock:
    """The lock; as a service, from an agent that is none, after that one has drained.

    Args:
        places: whose lock.
        service: `user` or `system` when a systemd unit runs this agent, else empty.

    Raises:
        AgentRunningError: another agent holds it.
        OSError: the lock file cannot be opened.
    """
    deadline = time.monotonic() + TAKE_OVER_S
    told = 0
    while True:
        try:
            return AgentLock(places, service)
        except AgentRunningError:
            holder = read_holder(places)
            pid = holder.get("pid")
            if not service or holder.get("service") or time.monotonic() > deadline:
                raise
        if isinstance(pid, int) and pid != told:
            told = pid
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        time.sleep(POLL_S)


def read_holder(places: Places) -> dict[str, Any]:
    """What the lock file says of its holder; empty when it says nothing."""
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
