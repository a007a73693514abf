"""Safe opening of regular files below a data root.

`open_plain` refuses a link, pipe, device, socket or folder without blocking.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.modes import PRIVATE_FILE
from rla_client.contract.process.descriptors import open_high

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # of a file that may be anything
MAX_SMALL_BYTES = 4 << 20  # of a file that is read whole: 20,000 hyper-parameters of 200 bytes


def sqlite_address(path: str | os.PathLike[str], options: str = "mode=ro") -> str:
    """The URI of an SQLite file, for `sqlite3.connect(…, uri=True)`; any name, `#`, `?` and `%` included."""
    return f"{Path(os.path.abspath(path)).as_uri()}?{options}"


def open_plain(path: str | os.PathLike[str], *, dir_fd: int | None = None, links: bool = False) -> BinaryIO:
    """Open a file for reading that anybody may have put there; never waits for a pipe or a device.

    Args:
        path: of the file.
        dir_fd: descriptor of the folder that a relative path begins at.
        links: the path may be a link; for files that the user names himself.

    Raises:
        BrokenFileError: it is a pipe, device, socket or folder, or a link where none is followed.
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BrokenFileError(os.fspath(path), "it is a link, which is not followed here") from error
        if error.errno == errno.ENXIO:
            raise BrokenFileError(os.fspath(path), "it is not a file but a socket or a device") from error
        raise
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        what = "folder" if stat.S_ISDIR(kind) else "pipe" if stat.S_ISFIFO(kind) else "device"
        raise BrokenFileError(os.fspath(path), f"it is not a file but a {what}")
    return open(descriptor, "rb")


def read_small(
    path: str | os.PathLike[str],
    max_bytes: int = MAX_SMALL_BYTES,
    *,
    dir_fd: int | None = None,
    links: bool = False,
) -> bytes:
    """All of a small file; see `open_plain`.

    Raises:
        BrokenFileError: it is not a file, or has more than `max_bytes`.
        OSError: it cannot be opened or read.
    """
    with open_plain(path, dir_fd=dir_fd, links=links) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise BrokenFileError(os.fspath(path), f"it is larger than {max_bytes} bytes")
    return data


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Append to a file in one write, so that lines of several processes stay whole.

    Args:
        path: of the file, made for its owner alone where it is not there; no link is followed and no pipe
            waited for.
        line: with its end.

    Raises:
        OSError: it is not a file, cannot be opened, or took a part of the line only.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = open_high(path, flags | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
    finally:
        os.close(descriptor)


def written_bytes(file: BinaryIO) -> int:
    """Size of an open file up to its first hole: nobody wrote what follows there."""
    size = os.fstat(file.fileno()).st_size
    try:
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    except OSError:  # empty, or a file system that does not report holes
        return size
    finally:
        file.seek(0)
    return min(size, hole)
