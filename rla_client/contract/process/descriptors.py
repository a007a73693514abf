"""Defensive file descriptors.

Training code and its libraries close descriptors that they did not open (`os.closerange` in code that
daemonizes), and write to numbers that they expect to be open (1 and 2). So a descriptor that stays open gets
a high number, and is checked to still lead to our file before a write, truncation or close.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

FLOOR = 512  # files of a training rarely get that far, and the usual soft limit is 1024
LEAST = 3  # C libraries print to 1 and 2, whatever these are
Identity = tuple[int, int]  # device and inode


def lowest_own() -> int:
    """The lowest number that our files get."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FLOOR if soft == resource.RLIM_INFINITY else min(FLOOR, soft // 2)


@cache  # once for a process
def grow_soon() -> None:
    """Have the kernel make room for high numbers in the background.

    In a process with threads that takes some 17 ms, once.
    """
    with suppress(OSError, RuntimeError):  # no /proc; no more threads
        if len(os.listdir("/proc/self/task")) > 1:
            threading.Thread(target=_grow, name="rla-descriptors", daemon=True).start()


def _grow() -> None:
    for descriptor in range(LEAST):
        with suppress(OSError):
            os.close(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest_own()))
            return


def lift(descriptor: int) -> int:
    """Move an open file to a high number; it keeps its number where no high one is free.

    Raises:
        OSError: it has the number of a standard stream, and there is no other; it is closed.
    """
    floor = lowest_own()
    if descriptor >= floor:
        return descriptor
    for least in (floor, LEAST):
        with suppress(OSError):
            lifted = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
            os.close(descriptor)
            return lifted
    if descriptor < LEAST:
        os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return descriptor


@contextmanager
def standard_taken() -> Iterator[None]:
    """Occupy closed numbers of 0 to 2 during a block, so that no file gets them.

    Where a program closed its standard streams, the next file would get their numbers, and output of a C
    library would be written into it.
    """
    taken: list[tuple[int, Identity]] = []
    try:
        with suppress(OSError):  # no /dev/null here
            while not all(map(_is_open, range(LEAST))):
                number = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                taken.append((number, identity(number)))
        yield
    finally:
        for number, null in taken:
            close_own(number, null)


def _is_open(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def open_high(
    path: str | os.PathLike[str], flags: int, mode: int = 0o600, *, dir_fd: int | None = None
) -> int:
    """As `os.open`, for a file that we write: it never has the number of a standard stream.

    Raises:
        OSError: it cannot be opened.
    """
    with standard_taken():
        return lift(os.open(path, flags, mode, dir_fd=dir_fd))


def identity(descriptor: int) -> Identity:
    """Device and inode of an open descriptor.

    Raises:
        OSError: it is not open.
    """
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def leads_to(descriptor: int, expected: Identity | None) -> bool:
    """Whether a descriptor is open and still leads where it did."""
    with suppress(OSError):
        return descriptor >= 0 and identity(descriptor) == expected
    return False


def close_own(descriptor: int, expected: Identity | None) -> None:
    """Close a descriptor, unless its number belongs to another file by now."""
    if leads_to(descriptor, expected):
        with suppress(OSError):
            os.close(descriptor)


class OwnFile:
    """A long-lived open file of ours, under a high number, and checked before each use.

    It is closed with its object at the latest.

    Args:
        descriptor: open; ours to close.

    Raises:
        OSError: as `lift`.
    """

    __slots__ = ("_descriptor", "_identity")

    def __init__(self, descriptor: int) -> None:
        self.replace(descriptor)

    def replace(self, descriptor: int) -> None:
        """Use this descriptor after somebody closed the former one, whose number it may have.

        Raises:
            OSError: as `lift`.
        """
        self._descriptor = lift(descriptor)
        self._identity = identity(self._descriptor)

    @property
    def number(self) -> int:
        """The descriptor, for one system call.

        Raises:
            OSError: somebody closed it.
        """
        if not leads_to(self._descriptor, self._identity):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptor

    def close(self) -> None:
        """Close it, unless its number belongs to another file by now. Does nothing the second time."""
        descriptor, self._descriptor = self._descriptor, -1
        close_own(descriptor, self._identity)

    def __enter__(self) -> OwnFile:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_identity"):
            self.close()


@contextmanager
def closing_fd(descriptor: int) -> Iterator[int]:
    """Context that closes a newly opened descriptor."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
