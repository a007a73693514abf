"""Room on this machine's disk for fetched files.

A master may announce any size, and several files are fetched at a time. So a file is begun only where all of
it fits beside the room promised to others, and `reserve_bytes` stay free; during the fetch the disk is
checked again, since others write to it, too. Where it does not fit there is a `NoRoomError`, and the caller
removes the partial file, which would block all others.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rla_agent.replicate.status_text import size_text
from rla_client.contract.errors import FetchError

RESERVE_SHARE: Final = 0.05  # of the disk, as for a run's own writes; but no more than
RESERVE_BYTES: Final = 1 << 30
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoRoomError(FetchError):
    """The disk here has no room for a file that is to be fetched."""


def reserve_bytes(total: int) -> int:
    """Bytes of a disk of `total` bytes that stay free."""
    return min(RESERVE_BYTES, int(RESERVE_SHARE * total))


class Room:
    """Room of each disk that is promised to files being fetched. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._promised: Counter[int] = Counter()  # by device: bytes that are still to come

    @contextmanager
    def promised(self, descriptor: int, count: int) -> Iterator[Callable[[int], None]]:
        """Promise `count` bytes of an open file's or folder's disk; yields a counter of written bytes.

        Raises:
            NoRoomError: there is no room for them, or by now there is none; the disk or a quota is full.
        """
        device, left = os.fstat(descriptor).st_dev, count
        with self._lock:
            self._check(descriptor, self._promised[device] + count, count)
            self._promised[device] += count

        def wrote(more: int) -> None:
            nonlocal left
            with self._lock:
                self._promised[device] -= min(more, left)
                left -= min(more, left)
            self._check(descriptor, 0, left, share=0.5)

        try:
            yield wrote
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise NoRoomError(
                f"no room on this machine's disk: {error.strerror}; free space there"
            ) from error
        finally:
            with self._lock:
                self._promised[device] -= left

    def _check(self, descriptor: int, wanted: int, count: int, *, share: float = 1.0) -> None:
        """Raise where there is no room. `share`: of the reserve; concurrent writes may use a part of it."""
        disk = os.statvfs(descriptor)
        if not disk.f_blocks:
            return  # a file system that does not tell
        free, reserve = disk.f_bavail * disk.f_frsize, reserve_bytes(disk.f_blocks * disk.f_frsize)
        if free < wanted + reserve * share:
            raise NoRoomError(
                f"no room on this machine's disk: {size_text(count)} needed, {size_text(free)} free, of "
                f"which {size_text(reserve)} must stay free; free space there, or leave the file out"
            )
