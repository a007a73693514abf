"""Permission bits of new files or folders.

The training process makes the folders of its run under the user's umask. The agent, whose own umask is 0,
derives the permissions of new entries from their folder, from the first byte on: a file may be read by those
who may list its folder and written by those who may write there (`file_mode`), a folder has its parent's
permissions (`folder_mode`).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


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
    """The process's umask, read from /proc where possible, without an effect on other threads."""
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    found = os.umask(0o077)
    os.umask(found)
    return found


def open_within(name: str, flags: int, folder: int) -> int:
    """Open a file of an open folder; one that is not there is made, with the folder's permissions.

    Raises:
        OSError: it cannot be opened or made.
    """
    return os.open(name, flags | os.O_CREAT | os.O_CLOEXEC, file_mode(folder), dir_fd=folder)


def make_folder(name: str | bytes | os.PathLike[str], folder: int | None = None) -> bool:
    """Make a folder with its parent's permissions; False where something of that name is there.

    Args:
        name: in `folder`, or a path.
        folder: descriptor of the parent.

    Raises:
        OSError: it cannot be made.
    """
    try:
        parent = os.path.dirname(os.path.abspath(os.fsdecode(name))) if folder is None else folder
        os.mkdir(name, folder_mode(parent), dir_fd=folder)
    except FileExistsError:
        return False
    return True
