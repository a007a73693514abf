"""Lock of an experiment's log folder.

One experiment at a time writes into a log folder. It locks a descriptor of the folder itself with flock:
this creates no file, and the lock ends with the process. Started programs do not inherit it
(close-on-exec), and a forked child closes its copy, so workers that outlive a killed training hold no
lock. File systems that refuse such locks (NFS does, for folders) have none.
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
            return  # the first write reports the fault
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
        """Release the lock. Does nothing the second time."""
        if self._file is not None:
            self._file.close()

    def after_fork_in_child(self) -> None:
        """Close the child's descriptor: the parent's copy keeps the lock."""
        self.release()
