"""Locks on open files.

No lock outlives its process, and none is a file that could be left behind. flock belongs to the open file: it
ends with its last descriptor or mapping, including copies by fork. It is for locks that are only queried by
taking them. A record lock can be queried without taking it (`is_locked`): so clients see whether an agent
serves, and the agent whether a writer lives.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress

POLL_S = 0.025
_FLOCK = struct.Struct("hhqqi")  # struct flock on 64-bit Linux, natively aligned


def try_lock(descriptor: int, *, shared: bool = False, timeout_s: float = 0.0) -> bool:
    """Flock an open file or folder; False where another holds it for `timeout_s`.

    Raises:
        OSError: the file system has no such locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        else:
            return True


def wait_for_lock(descriptor: int) -> None:
    """Flock an open file, however long another holds it.

    Raises:
        OSError: the file system has no such locks.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def holder_pid(descriptor: int) -> int | None:
    """The process that holds the flock of an open file, if the kernel reports it."""
    found = os.fstat(descriptor)
    own = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pids: dict[str, int] = {}
    with suppress(OSError, ValueError), open("/proc/locks", encoding="ascii") as file:
        for line in file:  # 1: FLOCK  ADVISORY  WRITE 1234 08:01:12345 0 EOF
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == str(found.st_ino):
                pids[words[5]] = int(words[4])
    if own not in pids and len(pids) == 1:  # on btrfs and overlays st_dev is not the device of the lock
        own = next(iter(pids))
    pid = pids.get(own, 0)
    return pid if pid > 0 else None  # 0 or -1: not of this pid namespace


def lock_record(descriptor: int) -> None:
    """Take the record lock of an open file, for as long as that is open.

    Raises:
        OSError: another holds it, or the file system has no such locks.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def wait_for_record(descriptor: int, place: int, timeout_s: float) -> None:
    """Take the record lock of one byte of an open file, until that is closed.

    Raises:
        BlockingIOError, PermissionError: another has held it for `timeout_s`.
        OSError: the file system has no such locks.
    """
    wanted, until = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0), time.monotonic() + timeout_s
    while True:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > until:
                raise
            time.sleep(POLL_S)
        else:
            return


def lock_record_of_process(descriptor: int) -> None:
    """Take the record lock of a file for this process alone: no child of fork holds it.

    It ends when the process closes any descriptor of the file.

    Raises:
        OSError: another process holds it, or the file system has no such locks.
    """
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(descriptor: int, *, by_file: bool = False) -> bool:
    """Whether somebody else holds the record lock of an open file.

    Args:
        descriptor: open for reading and writing.
        by_file: check for another open file instead of another process.

    Raises:
        OSError: that cannot be found out.
    """
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK if by_file else fcntl.F_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
