"""Exit status, lock or output in the files of an attempt."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.process.locks import try_lock

BY_SIGNAL = 128  # a shell's status for a program ended by signal n is 128 + n
STARTING_S = 5.0  # from the lock to the shell's first line
POLL_S = 0.05
KILLS = frozenset({1, 2, 3, 9, 15})  # signals from outside; others are faults of the program
MAX_STATUS_BYTES = 64


def exit_status(path: str | os.PathLike[str]) -> int | None:
    """Exit status in a file; None if it has not been written."""
    try:
        text = read_small(path, MAX_STATUS_BYTES).decode(errors="replace")
    except (OSError, RlaError):
        return None
    return int(text) if text.endswith("\n") and text.strip().isdecimal() else None


@contextmanager
def _opened_lock(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(lock: str) -> bool:
    """Whether a process of the run lives, or is being started; False without locks."""
    with suppress(OSError), _opened_lock(lock) as descriptor:
        return os.fstat(descriptor).st_uid == os.geteuid() and not try_lock(descriptor, shared=True)
    return False


def is_released(lock: str, timeout_s: float) -> bool:
    """Whether no process holds a lock file, at the latest after `timeout_s`; True without locks."""
    with suppress(OSError), _opened_lock(lock) as descriptor:
        return try_lock(descriptor, timeout_s=timeout_s)
    return True


def group_of(lock: str) -> int | None:
    """Process group of a run that holds its lock; None if none lives, or if it is unknown.

    The lock is held before the group's number is written, so this waits for a run that is being started.
    """
    with suppress(OSError), _opened_lock(lock) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return None
        deadline = time.monotonic() + STARTING_S
        while not try_lock(descriptor, shared=True):  # shared: two processes may check at once
            text = os.pread(descriptor, 32, 0).decode(errors="replace")
            if text.endswith("\n") or time.monotonic() > deadline:
                return int(text) if text.strip().isdecimal() and int(text) > 1 else None
            time.sleep(POLL_S)
    return None


def tail(path: str | os.PathLike[str], most: int) -> bytes:
    """The last bytes of a file; empty if it cannot be read."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
        return file.read()
    return b""
