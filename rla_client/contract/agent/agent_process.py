"""The agent of this machine, as its lock file shows it.

The agent holds an open-file-description lock on `Places.lock` for life; a query of that lock's holder has no
side effect.
"""

from __future__ import annotations

import os
from typing import Any

from rla_client.contract.agent.places import Places
from rla_client.contract.process.locks import is_locked

START_TIMEOUT_S = 5.0
LEAST_FILES = 64  # open ones, below which an agent writes no outputs
CONNECT_AGAIN_S = 0.02  # an agent that holds its lock may not listen yet
READY_BODY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
SHORT_MOST = 255  # bytes of a body whose length is one byte
RECEIVE_BYTES = 1 << 16
MAX_ANSWER_BYTES = 64 << 20  # a status of many runs; a longer answer is not an agent's


def agent_alive(places: Places) -> bool:
    """Whether an agent holds the lock of this state folder now."""
    try:
        descriptor = os.open(places.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return is_locked(descriptor, by_file=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def memory_apart(places: Places) -> bool:
    """Whether the agent's /dev/shm is another one, since one of us is in a container."""
    theirs = agent_record(places).get("shm")
    return isinstance(theirs, int) and theirs != shared_memory_device()


def agent_record(places: Places) -> dict[str, Any]:
    """The record that an agent wrote of itself; empty without one."""
    import json  # noqa: PLC0415 - not at import of the package

    try:
        found = json.loads(places.lock.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def shared_memory_device() -> int | None:
    """Identity of this process's /dev/shm on this machine, None without one."""
    try:
        return os.stat("/dev/shm").st_dev
    except OSError:
        return None
