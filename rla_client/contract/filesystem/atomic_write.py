"""Atomic writes of whole files.

`write_atomic` leaves either the old file or the complete new one under the final name, also after a power
cut: temp file in the same folder, write, fsync, replace, fsync of the folder. A file that replaces an older
one never gets more permissions than that had.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rla_client.contract.filesystem.modes import PRIVATE_FILE, file_mode
from rla_client.contract.filesystem.safe_paths import is_there
from rla_client.contract.process.descriptors import open_high

TEMP_PREFIX = ".rla-tmp-"  # prefix of names that sweepers and replication skip
UNNAMED_TEMP = re.compile(re.escape(TEMP_PREFIX) + r"[0-9a-f]{16}\Z")  # as `temp_path` makes them
FORK_COPY_PREFIX = f"{TEMP_PREFIX}fork-"  # folders in which a fork copies logs
OLD_TEMP_S = 3600.0  # no small file is written for so long
NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_atomic(
    path: str | os.PathLike[str], data: bytes, *, mode: int | None = None, durable: bool = True
) -> None:
    """Write `data` to `path` atomically.

    Args:
        path: final name; its folder exists.
        data: the content.
        mode: permission bits before umask, default: those of `file_mode`; never more than those of a
            replaced file.
        durable: False leaves the fsyncs to the caller.

    Raises:
        OSError: the file could not be written, and which; the old content, if any, is untouched.
    """
    try:
        with atomic_file(path, mode=mode, durable=durable) as file:
            file.write(data)
    except OSError as error:
        if error.filename is None:  # of a write to a descriptor: the caller may write several disks
            error.filename = os.fspath(path)
        raise


@contextmanager
def atomic_file(
    path: str | os.PathLike[str],
    *,
    mode: int | None = None,
    durable: bool = True,
    dir_fd: int | None = None,
    temp: str | None = None,
    exclusive: bool = False,
) -> Iterator[BinaryIO]:
    """Open a temp file beside `path` that takes its name when the block ends without error.

    `mode`: see `write_atomic`; the others: see `replacing`.
    """
    with replacing(path, durable=durable, dir_fd=dir_fd, temp=temp, exclusive=exclusive) as new:
        bits = file_mode(new.parent if dir_fd is None else dir_fd) if mode is None else mode
        bits &= _bits(path, dir_fd)  # never more than the older file had
        with open(open_high(new, NEW_FLAGS, bits, dir_fd=dir_fd), "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    durable: bool = True,
    dir_fd: int | None = None,
    temp: str | None = None,
    exclusive: bool = False,
) -> Iterator[Path]:
    """Yield a temp name; the block's file of that name is renamed to `path` when it ends without error.

    It is for files that a library writes, or links; otherwise use `atomic_file`. The block syncs the content.

    Args:
        path: final name; its folder exists.
        durable: False leaves the sync of the folder to the caller.
        dir_fd: descriptor of the folder, `path` and the temp name are relative to.
        temp: the temp file's name, for callers that must recognize it after a crash.
        exclusive: never replace an existing file.

    Raises:
        FileExistsError: `exclusive`, and something has the name.
        OSError: it failed; an existing file stays, and the temp file is removed.
    """
    new = temp_path(path) if temp is None else Path(path).with_name(temp)
    try:
        yield new
        if not exclusive:
            os.replace(new, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        elif not claim_name(new, path, dir_fd=dir_fd):
            raise FileExistsError(errno.EEXIST, "has the name", path)  # noqa: TRY301 - one way out
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=dir_fd)
        raise
    if durable and dir_fd is not None:
        os.fsync(dir_fd)
    elif durable:
        fsync_folder(new.parent)


def claim_name(
    temp: str | bytes | os.PathLike[str], final: str | bytes | os.PathLike[str], *, dir_fd: int | None = None
) -> bool:
    """Rename an entry of a folder unless its new name exists: then both stay, and the result is False.

    Check and rename are atomic where the file system has hard links.

    Raises:
        OSError: it could not be renamed.
    """
    try:
        os.link(temp, final, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError:  # hard links are unsupported, or it is a folder; other faults show below
        if is_there(final, dir_fd=dir_fd):
            return False
        os.rename(temp, final, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    else:
        os.unlink(temp, dir_fd=dir_fd)
    return True


def _bits(path: str | os.PathLike[str], dir_fd: int | None) -> int:
    """Permission bits of a plain file; all bits where there is none."""
    try:
        found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return 0o777
    return stat.S_IMODE(found.st_mode) | PRIVATE_FILE if stat.S_ISREG(found.st_mode) else 0o777


def temp_path(final: str | os.PathLike[str]) -> Path:
    """A fresh hidden name in the folder of `final`, short whatever the length of that name."""
    return Path(final).parent / f"{TEMP_PREFIX}{os.urandom(8).hex()}"


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Make creations, renames and removals in a folder durable."""
    _fsync(path, os.O_DIRECTORY)


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Make a file that another process wrote durable.

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
