"""Permission bits of copies."""

from __future__ import annotations

import os


def copy_mode(found: int) -> int:
    """Permission bits of copies of a file of mode `found`: read, write, execute; the owner can read them."""
    return found & 0o777 | 0o400


def folder_copy_mode(path: bytes, dir_fd: int | None = None) -> int:
    """Permission bits of copies of a folder; the owner can work in them.

    A kind may be a link to another disk, and a link's own mode is open to all, so the link is followed.

    Raises:
        OSError: it is not there.
    """
    return os.stat(path, dir_fd=dir_fd).st_mode & 0o777 | 0o700
