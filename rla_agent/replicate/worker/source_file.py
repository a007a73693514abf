"""Local file that is being sent.

It is opened by `safe_paths.walk_root`, so that a folder that is swapped for a link after the scan cannot lead
outside of the data root. A `SourceFile` hashes the bytes that are read in order.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from rla_agent.replicate.backend.errors import UnreadableError
from rla_agent.replicate.copy_modes import copy_mode
from rla_agent.replicate.file_state import Local, SentRecord
from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import walk_root
from rla_client.contract.process.descriptors import closing_fd

EDGE_BYTES: Final = 4096  # of the head and of the tail, hashed before each append
READ_BYTES: Final = 4 << 20


def local_state(found: os.stat_result) -> Local:
    """Identity of a file's version, with its permissions."""
    mode = copy_mode(found.st_mode)
    return Local(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, mode)


def open_beneath(root: int, path: bytes) -> int:
    """Open a regular file for reading below the folder descriptor `root`.

    Raises:
        OSError: it is not there, is not a regular file, or a link lies on the way (ENOTDIR, ELOOP).
    """
    *folders, name = path.split(b"/")
    try:
        folder = walk_root(root, folders)
    except UnsafeNameError as error:
        raise OSError(errno.EXDEV, "leaves the data root", os.fsdecode(path)) from error
    with closing_fd(folder):
        descriptor = os.open(name, READ_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fsdecode(path))
    return descriptor


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 and CRC-32 of a file's first bytes."""

    sha256: bytes
    crc: int
    size: int


class SourceFile:
    """An open file with running checksums of the bytes that were read in order."""

    def __init__(self, root: int, path: bytes) -> None:
        self._root = root
        self._path = path
        self.descriptor = open_beneath(root, path)
        self.local = local_state(os.fstat(self.descriptor))
        self._sha = hashlib.sha256()
        self._crc = 0
        self._at = 0

    def read(self, offset: int, count: int) -> bytes:
        """Read bytes of the file; those from where the checksums end are added to them.

        Raises:
            UnreadableError: the disk or file server gave an error.
        """
        try:
            data = os.pread(self.descriptor, count, offset)
        except OSError as error:
            raise UnreadableError(self._path, error) from error
        if offset <= self._at < offset + len(data):
            more = memoryview(data)[self._at - offset :]
            self._sha.update(more)
            self._crc = zlib.crc32(more, self._crc)
            self._at += len(more)
        return data

    def skip_to(self, offset: int) -> None:
        """Add the bytes before `offset` to the checksums."""
        while self._at < offset and self.read(self._at, min(READ_BYTES, offset - self._at)):
            pass

    def crc_of(self, size: int) -> int:
        """CRC-32 of the first `size` bytes, beside the running checksums."""
        crc = at = 0
        while at < size and (data := os.pread(self.descriptor, min(READ_BYTES, size - at), at)):
            crc = zlib.crc32(data, crc)
            at += len(data)
        return crc

    def fingerprint(self, size: int) -> Fingerprint:
        """Fingerprint of the first `size` bytes, or fewer where the file ends; no more were read in order."""
        self.skip_to(size)
        return Fingerprint(self._sha.digest(), self._crc, self._at)

    def unchanged(self, *, may_grow: bool) -> bool:
        """Whether the path still leads to this file, unchanged since it was opened."""
        try:
            with closing(SourceFile(self._root, self._path)) as again:
                now = again.local
        except OSError:
            return False
        if may_grow:
            return now.ino == self.local.ino and now.size >= self.local.size
        return now == self.local

    def record(self, generation: int, size: int, remote_mtime_s: int) -> SentRecord:
        """The ledger's row once `size` bytes, all read in order, are on the master."""
        head, tail = self.edges(size)
        return SentRecord(
            self.local, generation, size, self._crc, head, tail, self._sha.digest(), remote_mtime_s
        )

    def edges(self, size: int) -> tuple[int, int]:
        """CRC-32 of the first and of the last 4 KiB of the first `size` bytes."""
        head = os.pread(self.descriptor, min(EDGE_BYTES, size), 0)
        tail = os.pread(self.descriptor, min(EDGE_BYTES, size), max(0, size - EDGE_BYTES))
        return zlib.crc32(head), zlib.crc32(tail)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def fingerprint_of(read: Callable[[int, int], bytes], size: int) -> Fingerprint:
    """Hash the first `size` bytes that `read(offset, count)` returns, or fewer where they end."""
    sha, crc, at = hashlib.sha256(), 0, 0
    while at < size and (data := read(at, min(READ_BYTES, size - at))):
        sha.update(data)
        crc = zlib.crc32(data, crc)
        at += len(data)
    return Fingerprint(sha.digest(), crc, at)


def fingerprint(root: int, path: bytes, size: int) -> Fingerprint:
    """Hash the first `size` bytes of a file; `size` of the result is less where the file is shorter."""
    with closing(SourceFile(root, path)) as source:
        return source.fingerprint(size)
