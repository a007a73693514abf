"""Ports for servers that tests start, stop and start again."""

from __future__ import annotations

import random
import socket
from typing import Final

FIRST: Final = 20_000
END: Final = 32_000
"""Below the ports that the kernel gives to outgoing connections (from 32768 on): one of these could take the
port of a server that is stopped for a moment, and whoever calls that port could meet itself."""
TRIES: Final = 100
_chance = random.SystemRandom()  # not the same numbers in each worker
_marks: list[socket.socket] = []


def free_port() -> int:
    """A port of this machine's loopback that nobody uses; no other caller gets it while this process lives.

    A server that is not started yet, or stopped for a moment, has no port: a name in the kernel's abstract
    name space stands for it, which all processes of tests see.
    """
    for _ in range(TRIES):
        port = _chance.randrange(FIRST, END)
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0rla-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        _marks.append(mark)
        return port
    message = f"no free port from {FIRST} to {END} in {TRIES} tries"
    raise AssertionError(message)
