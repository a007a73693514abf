"""The one way to write a whole file, the folder operations that make it durable, and who may read what.

`write_atomic` leaves either the old file or the whole new one under the final name, also after
a power cut: temp file in the same folder, write, fsync, replace, fsync of the folder.

Permissions: the training process makes the folders of its run under the user's umask. The agent, whose own
umask is 0, gives what it makes in a folder the folder's permissions, from the first byte on: a file may be
read by those who may list its folder and written by those who may write there (`file_mode`), a folder is
as its parent (`folder_mode`). What takes the place of an older file never gets more than that had.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMP_PREFIX = ".rla-tmp-"  # sweepers and replication pass over names that begin so
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_atomic(
    path: str | os.PathLike[str], data: bytes, *, mode: int = 0o666, durable: bool = True
) -> None:
    """Put `data` under `path`, whole or not at all.

    Args:
        path: final name; its folder exists.
        data: the content.
        mode: permission bits before umask; a file that is replaced hands on at most its own.
        durable: False leaves the fsyncs to somebody who does them before promising anything.

    Raises:
        OSError: the file could not be written; the old content, if any, is untouched.
    """
    with atomic_file(path, mode=mode, durable=durable) as file:
        file.write(data)


@contextmanager
def atomic_file(
    path: str | os.PathLike[str], *, mode: int = 0o666, durable: bool = True
) -> Iterator[BinaryIO]:
    """Open a temp file beside `path` that takes its name when the block ends without error.

    `mode`: permission bits before umask. A file that is replaced hands on at most its own.
    """
    final = Path(path)
    temp = temp_path(final)
    descriptor = os.open(temp, _NEW, mode & _bits(final))
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


def _bits(path: Path) -> int:
    """Permission bits of a plain file; all where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0o777
    return stat.S_IMODE(found.st_mode) | PRIVATE_FILE if stat.S_ISREG(found.st_mode) else 0o777


def file_mode(folder: int | str | os.PathLike[str]) -> int:
    """Permission bits of a file made in `folder` (a path or a descriptor).

    Raises:
        OSError: the folder is not there.
    """
    found = os.stat(folder).st_mode
    shared = 0o644 if found & stat.S_ISVTX else 0o666  # in a sticky folder others may not change a file
    return found & shared | PRIVATE_FILE


def folder_mode(folder: int | str | os.PathLike[str]) -> int:
    """Permission bits of a folder made in `folder` (a path or a descriptor).

    Raises:
        OSError: the folder is not there.
    """
    found = os.stat(folder).st_mode
    shared = 0o755 if found & stat.S_ISVTX else 0o777
    return found & shared | PRIVATE_FOLDER


def give_mode(descriptor: int, mode: int) -> None:
    """Set a file's permission bits; on a file system that keeps none nothing happens."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with suppress(OSError):
            os.fchmod(descriptor, mode)


def umask() -> int:
    """The process's umask."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def open_within(name: str, flags: int, folder: int) -> int:
    """Open a file of an open folder; one that is not there is made, with the folder's permissions.

    Raises:
        OSError: it cannot be opened or made.
    """
    return os.open(name, flags | os.O_CREAT | os.O_CLOEXEC, file_mode(folder), dir_fd=folder)


def make_folder(name: str | os.PathLike[str], folder: int | None = None) -> bool:
    """Make a folder with its parent's permissions; False where something of that name is there.

    Args:
        name: in `folder`, or a path.
        folder: descriptor of the parent.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.mkdir(name, folder_mode(Path(name).parent if folder is None else folder), dir_fd=folder)
    except FileExistsError:
        return False
    return True


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
