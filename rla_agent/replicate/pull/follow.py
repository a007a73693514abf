"""`pull --follow`: keep a selection's files current, for TensorBoard or a plot on a laptop.

Logs that grow on the master grow here too, in place: a reader that has the file open (TensorBoard) sees the
new rows, which it would not in a file that replaced it. Whether the local file is a beginning of the
master's is seen by size and by its first and last 4 KiB; if not, it is fetched whole. The connection is
kept; when it breaks, a new one is made after a while.
"""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.target import LinkError, RemoteStat, Session, TransientError
from rla_agent.replicate.worker.plan import backoff_s
from rla_agent.replicate.worker.source import EDGE_BYTES

if TYPE_CHECKING:
    from rla_agent.replicate.pull.transfer import Tally

READ_BYTES: Final = 4 << 20
LONGEST_REST_S: Final = 60.0  # somebody watches


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


def follow(
    connect: Callable[[], Session],
    pull: Callable[[Session], Tally],
    every_s: float,
    tell: Callable[[Tally], None],
    complain: Callable[[str], None],
) -> None:
    """Pull again and again, until somebody interrupts.

    Args:
        connect: opens a session.
        pull: fetches what is new.
        every_s: seconds between two looks.
        tell: takes what came of each look.
        complain: takes a line about a connection that broke.

    Raises:
        TargetError: the master refuses; whatever may pass is tried again.
    """
    tries = 0
    while True:
        session = None
        try:
            session = connect()
            while True:
                tell(pull(session))
                tries = 0
                time.sleep(every_s)
        except LinkError as error:
            tries += 1
            rest = min(LONGEST_REST_S, max(1.0, backoff_s(tries, random.random())))  # noqa: S311
            complain(f"{error}; trying again in {rest:.0f} s")
            time.sleep(rest)
        finally:
            if session is not None:
                session.close()
