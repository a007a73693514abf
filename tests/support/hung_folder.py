"""A folder on a file server that hangs: every call into it waits, until it is brought back.

It is a FUSE mount over the folder, whose server never answers, not even the first request; that needs
root and nothing else. Taken away, the folder is as it was before; calls that waited fail with ENOTCONN.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)

needs_hung_folder = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="a mount that hangs needs root and /dev/fuse",
)


class HungFolder:
    """Hangs from `hang` to `come_back`."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        self._device: int | None = None

    def hang(self) -> None:
        """From now on every call into the folder waits."""
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0".encode()
        if _libc.mount(b"hung", self._folder, b"fuse", 0, options):
            code = ctypes.get_errno()
            self._close()
            pytest.skip(f"a mount that hangs cannot be had here: {os.strerror(code)}")

    def come_back(self) -> None:
        """The folder is as it was."""
        if self._device is not None:
            assert _libc.umount2(self._folder, _MNT_DETACH) == 0, os.strerror(ctypes.get_errno())
            self._close()

    def _close(self) -> None:
        assert self._device is not None
        os.close(self._device)
        self._device = None


@contextlib.contextmanager
def hung(folder: Path) -> Iterator[HungFolder]:
    """A folder that hangs; brought back at the end, if it was not before."""
    made = HungFolder(folder)
    made.hang()
    try:
        yield made
    finally:
        made.come_back()
