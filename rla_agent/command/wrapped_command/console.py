"""Bounded copy of a command's output (`console.txt`).

The first half of the bound is stored in a file, the last half in a ring, so that both the beginning and the
traceback at the end survive a verbose program. The file moves into the first run's log folder as soon as that
is known, later runs of the same command get hard links to it; the ring is appended when the command has
ended.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.filesystem.modes import open_within
from rla_client.contract.filesystem.safe_paths import open_folder

CONSOLE_NAME = "console.txt"
READ_BYTES = 1 << 16
_FLAGS = os.O_RDWR | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class ConsoleKeeper:
    """Stores at most `max_bytes` of the output."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Store in unnamed files of `folder` until a run is known; with 0 bytes store nothing."""
        self._head_room = max_bytes - max_bytes // 2
        self._ring_bytes = max_bytes // 2
        self._ring_total = 0
        self._folder = folder
        self._file = -1 if max_bytes == 0 else _unnamed(folder)
        self._ring = -1
        self._home: tuple[str, str] | None = None
        self._placed: set[str] = set()
        self._later: list[tuple[str, str]] = []
        self._lost = 0

    def add(self, data: bytes) -> None:
        """Store a piece of output. A full disk loses it, which the file notes; nothing is raised."""
        if self._file < 0:
            return
        head, rest = data[: self._head_room], data[self._head_room :]
        if head:
            self._head_room -= len(head)
            self._write(head)
        if rest and self._ring_bytes:
            before = self._ring_total
            try:
                self._keep_last(rest)
            except OSError:
                self._lost += len(rest) - (self._ring_total - before)

    def _write(self, data: bytes) -> None:
        """Append, after a note about lost output, if there is any."""
        note = f"\n[... {self._lost} bytes left out: they could not be written ...]\n" if self._lost else ""
        size = os.fstat(self._file).st_size
        try:
            if note:
                write_all(self._file, note.encode())
                self._lost = 0
                size += len(note)
            write_all(self._file, data)
        except OSError:
            written = max(0, os.fstat(self._file).st_size - size)
            if self._lost:  # half a note is useless
                os.ftruncate(self._file, size)
                written = 0
            self._lost += len(data) - written

    def _keep_last(self, data: bytes) -> None:
        if self._ring < 0:
            self._ring = _unnamed(self._folder)
        skipped = max(0, len(data) - self._ring_bytes)
        self._ring_total += skipped
        data = data[skipped:]
        while data:
            at = self._ring_total % self._ring_bytes
            piece = data[: self._ring_bytes - at]
            os.pwrite(self._ring, piece, at)
            self._ring_total += len(piece)
            data = data[len(piece) :]

    def place(self, root: str, log_folder: str) -> None:
        """Put the console file into the log folder of a run of this command. May be called again."""
        if self._file < 0 or log_folder in self._placed:
            return
        below = os.path.relpath(log_folder, root)
        with suppress(OSError, UnsafeNameError):
            if self._home is None:
                kept = self._copy(root, below)
                os.close(self._file)
                self._file, self._home = kept, (root, below)
            else:
                self._link(root, below)
            self._placed.add(log_folder)

    def _link(self, root: str, below: str) -> None:
        assert self._home is not None
        folder, home = open_folder(root, below), open_folder(*self._home)
        try:
            os.link(CONSOLE_NAME, CONSOLE_NAME, src_dir_fd=home, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return
        except OSError:
            self._later.append((root, below))  # another file system
        finally:
            os.close(folder)
            os.close(home)

    def finish(self) -> None:
        """Add the ring, make the file durable, copy it where a link was not possible."""
        if self._file < 0:
            return
        with suppress(OSError):
            self._add_ring()
        with suppress(OSError):
            self._write(b"")
            os.fsync(self._file)
        for root, below in self._later:
            with suppress(OSError, UnsafeNameError):
                copy = self._copy(root, below)
                os.fsync(copy)
                os.close(copy)
        os.close(self._file)
        self._file = -1

    def _add_ring(self) -> None:
        if self._ring < 0:
            return
        start = max(0, self._ring_total - self._ring_bytes)
        if start:
            self._write(f"\n[... {start} bytes left out ...]\n".encode())
        at = start
        while at < self._ring_total:
            inside = at % self._ring_bytes
            want = min(READ_BYTES, self._ring_bytes - inside, self._ring_total - at)
            piece = os.pread(self._ring, want, inside)
            if not piece:
                break
            self._write(piece)
            at += len(piece)
        os.close(self._ring)
        self._ring = -1

    def _copy(self, root: str, below: str) -> int:
        """A descriptor of a copy in another log folder; an incomplete copy is removed."""
        folder = open_folder(root, below)
        try:
            copy = open_within(CONSOLE_NAME, _FLAGS, folder)
            try:
                at = 0
                while piece := os.pread(self._file, READ_BYTES, at):
                    at += len(piece)
                    write_all(copy, piece)
            except OSError:
                os.close(copy)
                os.unlink(CONSOLE_NAME, dir_fd=folder)
                raise
        finally:
            os.close(folder)
        return copy


def _unnamed(folder: Path) -> int:
    descriptor, path = tempfile.mkstemp(prefix=".console-", dir=folder)
    os.unlink(path)
    return descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`."""
    while data:
        data = data[os.write(descriptor, data) :]
