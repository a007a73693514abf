"""The one way to write a whole file, and the folder operations that make it durable.

`write_atomic` leaves either the old file or the whole new one under the final name, also after
a power cut: temp file in the same folder, write, fsync, replace, fsync of the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMP_PREFIX = ".rla-tmp-"  # sweepers and replication pass over names that begin so


def write_atomic(
    path: str | os.PathLike[str], data: bytes, *, mode: int = 0o644, durable: bool = True
) -> None:
    """Put `data` under `path`, whole or not at all.

    Args:
        path: final name; its folder exists.
        data: the content.
        mode: permission bits before umask.
        durable: False leaves the fsyncs to somebody who does them before promising anything.

    Raises:
        OSError: the file could not be written; the old content, if any, is untouched.
    """
    with atomic_file(path, mode=mode, durable=durable) as file:
        file.write(data)


@contextmanager
def atomic_file(
    path: str | os.PathLike[str], *, mode: int = 0o644, durable: bool = True
) -> Iterator[BinaryIO]:
    """Open a temp file beside `path` that takes its name when the block ends without error."""
    final = Path(path)
    temp = temp_path(final)
    descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temp, final)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp)
        raise
    if durable:
        fsync_folder(final.parent)


def temp_path(final: str | os.PathLike[str]) -> Path:
    """A fresh hidden name in the folder of `final`, short whatever the length of that name."""
    return Path(final).parent / f"{TEMP_PREFIX}{os.urandom(8).hex()}"


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Make creations, renames and removals in a folder durable."""
    _fsync(path, os.O_DIRECTORY)


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Make what another process wrote into a file durable.

    Raises:
        OSError: it is not there, or could not be synced.
    """
    _fsync(path, 0)


def _fsync(path: str | os.PathLike[str], flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
