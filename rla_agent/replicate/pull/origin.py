"""What a pull must not touch: files of runs made on this machine, and those changed after the master's.

The master's copy of a run lags behind the machine that writes it. A pull into that machine's own data root
must not put old rows in the place of new ones, least of all under the agent, which holds them open.
"""

from __future__ import annotations

import os
import socket

from rla_agent.replicate import registry
from rla_agent.replicate.backend.target import TargetError
from rla_agent.replicate.worker.scan import Scanner, Scope
from rla_client.contract.paths import find_places


class NewerHereError(TargetError):
    """The file here was changed after the master's, or its run was made here: it stays."""

    def __init__(self, path: bytes) -> None:
        super().__init__(
            "fetch",
            path,
            "what is here is not the master's, and is newer or of a run of this machine; it stays. "
            "Move it away to get the master's",
        )


class Ours:
    """Which items of a data root were made here: it is sent from this machine, and their runs are of it.

    Remembers the last one, for files come in groups.
    """

    def __init__(self, root: str) -> None:
        known = {os.path.realpath(entry.data_root) for entry in registry.entries(find_places().state)}
        self._sent_from_here = os.path.realpath(root) in known  # else it is a copy, whoever made the runs
        self._scanner = Scanner(os.fsencode(root), Scope(host=""))
        self._host = socket.gethostname()
        self._last: tuple[str, bool] = ("", False)

    def made(self, item: str) -> bool:
        """Whether run.json here says so; False of an item that is not here."""
        if not self._sent_from_here:
            return False
        if self._last[0] != item:
            run = self._scanner.run(item)
            self._last = item, run is not None and run.host == self._host
        return self._last[1]


def size_and_time(folder: int, name: str) -> tuple[int, int] | None:
    """Size and time (whole seconds) of what has a name in a folder (descriptor); None: nothing has it."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size, int(found.st_mtime)
