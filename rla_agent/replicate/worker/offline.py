"""Tells of a master that goes away and comes back, in the agent's own log: once each.

`worker.log` has the details; `rla-agent logs` shows `agent.log`. The agent moves that file away when it is
long, so it is opened anew wherever it is another one by then.
"""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.model.log_lines import LOG_FORMAT, OneLine
from rla_agent.replicate.report import shown_target

if TYPE_CHECKING:
    from rla_agent.replicate.worker.plan import Health

AGENT_LOG: Final = "agent.log"  # of places.Places.log
QUIET_S: Final = 60.0  # after it came back; a link that comes and goes would fill the log
_log = logging.getLogger("rla_agent.replicate.worker.offline")


def log_beside_the_agent(state: Path) -> None:
    """Let what this module says appear in the agent's log too."""
    handler = logging.handlers.WatchedFileHandler(state / AGENT_LOG, delay=True)
    handler.setFormatter(OneLine(LOG_FORMAT))
    _log.addHandler(handler)


class Outage:
    """Of one target: whether it is away by what was last said of it."""

    def __init__(self, target: str) -> None:
        """`target`: its name, see `settings.Target`."""
        self._name = shown_target(target)
        self._away = False
        self._quiet_until = 0.0

    def look(self, health: Health, now: float, *, came_through: bool) -> None:
        """Say it when the target went away or came back since the last call.

        Args:
            health: of the target now.
            now: monotonic seconds.
            came_through: the master has just done what it was asked.
        """
        away = bool(health.reason)
        if away and not self._away and now >= self._quiet_until:
            mend = f"; {health.mend}" if health.mend else ""
            _log.warning("replication to %s is held up: %s%s", self._name, health.reason, mend)
            self._away = True
        elif self._away and not away and came_through:
            _log.info("replication to %s goes on", self._name)
            self._away, self._quiet_until = False, now + QUIET_S
