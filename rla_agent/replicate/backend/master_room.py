"""Check of free space on the master's disk."""

from __future__ import annotations

from typing import Final

from rla_agent.replicate.backend.errors import FullError

ROOM_BYTES: Final = 1 << 20  # a disk with less is full


def check_room(path: bytes, free: int | None, count: int) -> None:
    """Raise FullError where `count` more bytes have no room; `free` None: unknown."""
    if free is not None and free < count + ROOM_BYTES:
        raise FullError("append to", path, "the master's disk is full", "free space on the master")
