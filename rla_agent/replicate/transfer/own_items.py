"""Items that were made on this machine.

The master's copy of a run lags behind the machine that writes it. A pull into that machine's own data root
must not replace new rows with old ones, least of all in files that the agent has open.
"""

from __future__ import annotations

import os
import socket

from rla_agent.replicate import registry
from rla_agent.replicate.worker.scan import Scanner, ScanScope
from rla_client.contract.agent.places import find_places


class OwnItems:
    """Decides whether items of a data root were made here: it is sent from this machine, as are their runs.

    The last item is cached, since files come in groups.
    """

    def __init__(self, root: str) -> None:
        known = {os.path.realpath(entry.data_root) for entry in registry.entries(find_places().state)}
        self._sent_from_here = os.path.realpath(root) in known  # else it is a copy, whoever made the runs
        self._scanner = Scanner(os.fsencode(root), ScanScope(host=""))
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
