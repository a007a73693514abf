"""The lock of an experiment's log folder.

One experiment at a time writes into a log folder. Its lock is flock's, on a descriptor of the folder itself:
nothing is created, so nothing is there to be copied, reported or left behind, and it ends with the process.
Programs that are started do not inherit it (close-on-exec), and a forked child closes its copy, so workers
that outlive a killed training hold nothing. Where the file system refuses such locks (NFS does, for folders)
there is none.
"""

from __future__ import annotations

import os

from rla_client.contract.errors import LaunchError
from rla_client.contract.process.descriptors import OwnFile
from rla_client.contract.process.fork_hooks import at_fork
from rla_client.contract.process.locks import holder_pid, try_lock

DYING_S = 2.0  # a killed process closes its files one by one: its last pipe may end before its lock does


class FolderLock:
    """Holds `folder` for this process.

    Raises:
        LaunchError: another process holds it.
    """

    def __init__(self, folder: str) -> None:
        self._file: OwnFile | None = None
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return  # whoever writes there will say what is wrong with it
        try:
            taken = try_lock(descriptor, timeout_s=DYING_S)
        except OSError:  # no such locks here
            os.close(descriptor)
            return
        if not taken:
            pid = holder_pid(descriptor)
            holder = "another process" if pid is None else f"process {pid}"
            os.close(descriptor)
            raise LaunchError(
                f"{holder} is writing into {folder}; wait until it has ended, or stop it, before you use "
                "the folder again"
            )
        try:
            self._file = OwnFile(descriptor)
        except OSError:
            return
        at_fork(self)

    def release(self) -> None:
        """Let go. Does nothing the second time."""
        if self._file is not None:
            self._file.close()

    def after_fork_in_child(self) -> None:
        """Let go: the parent's copy of the descriptor keeps the lock."""
        self.release()
