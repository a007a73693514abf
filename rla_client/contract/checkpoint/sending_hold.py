"""Hold of a checkpoint that is on its way to the master.

Where sending one takes longer than training takes for the next few, `max_to_keep` would take each away before
it is there, and the master would get none. So retention leaves alone, but notes as dropped, what is held;
whoever held it removes it in the end. The hold is a shared flock of the file or folder, which ends with its
process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rla_client.contract.process.locks import try_lock

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def hold(path: str | bytes | Path) -> int:
    """Hold a checkpoint's file or folder; closing the descriptor that this returns ends it.

    Raises:
        OSError: it is not there, it is being removed, or its file system has no locks.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        if not try_lock(descriptor, shared=True):
            raise BlockingIOError(os.fspath(path))  # noqa: TRY301 - one way out
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_held(path: Path) -> bool:
    """Whether somebody holds it; what cannot be found out counts as not held."""
    with suppress(OSError):
        descriptor = os.open(path, _FLAGS)
        try:
            return not try_lock(descriptor)
        finally:
            os.close(descriptor)
    return False
