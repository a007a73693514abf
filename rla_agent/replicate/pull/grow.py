"""A local copy of a file that grows on the master grows too, in place.

A reader that has it open (TensorBoard) sees the new rows, which it would not in a file that replaced it.
Whether the local file is a beginning of the master's is seen by size and by its first and last 4 KiB; if
not, it is fetched whole.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from rla_agent.replicate.backend.target import RemoteStat, Session, TransientError
from rla_agent.replicate.worker.source import EDGE_BYTES

READ_BYTES: Final = 4 << 20


def grow(session: Session, folder: int, name: str, path: bytes, state: RemoteStat) -> bool:
    """Append what the master's growing file has more than ours.

    Args:
        session: at the master.
        folder: descriptor of the local folder.
        name: local name in it.
        path: on the master.
        state: of the master's file; it may have grown since.

    Returns:
        False when ours is not there or is no beginning of it; nothing was changed then.

    Raises:
        TransientError: the master's file is shorter now, or the link broke; what came so far stays.
        OSError: it cannot be written.
    """
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        at = found.st_size
        if not stat.S_ISREG(found.st_mode) or not 0 < at <= state.size:
            return False
        if not _is_beginning(session, descriptor, path, at):
            return False
        while at < state.size:
            data = session.read(path, at, min(READ_BYTES, state.size - at))
            if not data:
                raise TransientError("fetch", path, f"the master's file ends at {at} of {state.size} bytes")
            at += os.pwrite(descriptor, data, at)
        os.utime(descriptor, (state.mtime_s, state.mtime_s))  # never later than the master's next version
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _is_beginning(session: Session, descriptor: int, path: bytes, size: int) -> bool:
    edge = min(EDGE_BYTES, size)
    return all(
        session.read(path, at, edge) == os.pread(descriptor, edge, at)
        for at in dict.fromkeys((0, size - edge))
    )
