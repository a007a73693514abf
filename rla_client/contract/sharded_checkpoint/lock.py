"""Lock of a folder's sharded checkpoints.

Publishers, removers and raisers of the fence hold LOCK_FILE meanwhile. With stale knowledge one of them could
replace a newer checkpoint with an older one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.process.descriptors import closing_fd, open_high
from rla_client.contract.process.locks import try_lock
from rla_client.contract.sharded_checkpoint.files import LOCK_FILE

PUBLISHER_S: Final = 30.0  # one may delete a large checkpoint, or be suspended
_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})  # of the file system


@contextmanager
def publishing_alone(above: Path) -> Iterator[None]:
    """Hold the lock of PARTS_FOLDER, except on a file system without locks.

    The lock is on a file, and not on the folder: over NFS only that is effective on other machines, too.

    Raises:
        BlockingIOError: another one has it for PUBLISHER_S.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing_fd(open_high(above / LOCK_FILE, flags, file_mode(above))) as descriptor:
        try:
            if not try_lock(descriptor, timeout_s=PUBLISHER_S):
                why = f"another process has held the lock for {PUBLISHER_S:g} s"
                raise BlockingIOError(errno.EAGAIN, why)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
