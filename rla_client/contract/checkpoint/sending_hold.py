"""Hold of a checkpoint that is on its way to the master.

Where sending a checkpoint takes longer than saving the next few, `max_to_keep` would delete each before it
has arrived, and the master would get none. So retention only marks a held checkpoint as dropped, and the
holder removes it in the end. The hold is a shared flock of the file, or of `whole.json` of a sharded
checkpoint, which ends with its process: on NFS a folder's lock is visible on its own machine alone.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rla_client.contract.process.locks import try_lock

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def hold(path: str | bytes | Path) -> int:
    """Hold a checkpoint; closing the descriptor that this returns ends it.

    Args:
        path: of its file, or of `whole.json` of a sharded one.

    Raises:
        OSError: it is not there, it is being removed, or its file system has no locks.
    """
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    locked = False
    try:
        locked = try_lock(descriptor, shared=True)
    finally:
        if not locked:
            os.close(descriptor)
    if not locked:
        raise BlockingIOError(os.fspath(path))
    return descriptor


def is_held(path: Path) -> bool:
    """Whether a checkpoint is held, `path` as of `hold`; False where that cannot be determined."""
    for access in (os.O_RDONLY, os.O_RDWR):
        try:
            descriptor = os.open(path, access | _FLAGS)
            try:
                return not try_lock(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:  # of NFS, for what is open to be read
                return False
    return False
