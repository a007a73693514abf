"""Outages of a target in the log."""

from __future__ import annotations

import logging
import logging.handlers
from typing import TYPE_CHECKING, Final

from rla_agent.replicate import status_text

if TYPE_CHECKING:
    from rla_agent.replicate.worker.retry_backoff import Health


QUIET_S: Final = 60.0  # between two warnings about a target: an unstable one would fill the log
#: Its records go to the agent's log, too.
outage_log = logging.getLogger("rla_agent.replicate.worker.outages")


class Outage:
    """Logs once each when a target becomes unreachable, is back, or is blocked by another fault."""

    def __init__(self, target: str) -> None:
        """`target`: its name, see `target_config.Target`."""
        self._name = status_text.shown_target(target)
        self._away: tuple[bool, str] | None = None  # blocked, fix: the identity of a fault
        self._quiet_until = 0.0

    def look(self, health: Health, now: float, *, came_through: bool) -> None:
        """Log a change of the target's health; `came_through`: a request has just succeeded."""
        away = (health.blocked, health.fix) if health.reason else None
        if away is not None and away != self._away and now >= self._quiet_until:
            fix = f"; {health.fix}" if health.fix else ""
            outage_log.warning("replication to %s is held up: %s%s", self._name, health.reason, fix)
            if self._away is not None:  # alternating faults would fill the log
                self._quiet_until = now + QUIET_S
            self._away = away
        elif self._away is not None and away is None and came_through:
            outage_log.info("replication to %s continues", self._name)
            self._away, self._quiet_until = None, now + QUIET_S
