"""Notifications of the agent to systemd.

Over the notify socket it sends READY, STATUS, WATCHDOG and STOPPING. The watchdog is fed by the ingest loop
itself, after each full turn: a hung loop is killed and started again without loss. Volume threads do not feed
it on purpose: a frozen disk delays its own streams and is no reason to end the agent. Without NOTIFY_SOCKET
every call does nothing.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


SERVICE_VARIABLE = "RLA_AGENT_SERVICE"  # set by the unit files: user or system
STATUS_INTERVAL_S = 5.0
BEATS_PER_TIMEOUT = 4  # the watchdog's time holds so many beats


class Notifier:
    """A process's connection to its service manager."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Read and remove the variables, so that no child takes itself for the service."""
        import socket  # noqa: PLC0415 - commands need none

        self._address = environment.pop("NOTIFY_SOCKET", "")
        timeout_us = environment.pop("WATCHDOG_USEC", "")
        owner = environment.pop("WATCHDOG_PID", "")
        self.kind = environment.pop(SERVICE_VARIABLE, "")
        ours = owner in {"", str(os.getpid())}
        self.beat_s = int(timeout_us) / 1e6 / BEATS_PER_TIMEOUT if timeout_us.isdecimal() and ours else 0.0
        self._next_beat = 0.0
        self._next_status = 0.0
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self) -> None:
        """Send READY: the sockets are bound and the spool was read."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Send STOPPING: no new work is taken."""
        self._send("STOPPING=1\nSTATUS=writing what remains")

    def beat(self, now: float) -> None:
        """Feed the watchdog after a full turn of the ingest loop; `now` is monotonic."""
        if self.beat_s and now >= self._next_beat:
            self._next_beat = now + self.beat_s
            self._send("WATCHDOG=1")

    def status_due(self, now: float) -> bool:
        """Whether it is time for a new line of text."""
        if self._socket is None or now < self._next_status:
            return False
        self._next_status = now + STATUS_INTERVAL_S
        return True

    def status(self, text: str) -> None:
        """One line that `systemctl status` shows."""
        self._send(f"STATUS={text.splitlines()[0] if text else ''}")

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError):  # a full queue or a manager that restarts: the next one arrives
            self._socket.sendto(text.encode(), address)
