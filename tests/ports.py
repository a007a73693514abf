"""Ports for servers that tests start, stop and start again."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from typing import Final

FIRST: Final = 20_000
END: Final = 32_000
"""Below the ports that the kernel gives to outgoing connections (from 32768 on): one of these could take the
port of a server that is stopped for a moment, and whoever calls that port could meet itself."""
TRIES: Final = 100
_chance = random.SystemRandom()  # not the same numbers in each worker


def free_port() -> int:
    """A port of this machine's loopback that nobody uses."""
    for _ in range(TRIES):
        port = _chance.randrange(FIRST, END)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    message = f"no free port from {FIRST} to {END} in {TRIES} tries"
    raise AssertionError(message)
