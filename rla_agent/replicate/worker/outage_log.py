"""Outages of a target in the log."""

from __future__ import annotations

import logging
import logging.handlers
from typing import TYPE_CHECKING, Final

from rla_agent.replicate import status_text

if TYPE_CHECKING:
    from rla_agent.replicate.worker.retry_backoff import Health


QUIET_S: Final = 60.0  # between two warnings about a target: one that comes and goes would fill the log
#: What it says is in the agent's log, too.
outage_log = logging.getLogger("rla_agent.replicate.worker.outages")


class Outage:
    """Tells of a target that goes away and comes back, once each, and of another fault that holds it up."""

    def __init__(self, target: str) -> None:
        """`target`: its name, see `target_config.Target`."""
        self._name = status_text.shown_target(target)
        self._away: tuple[bool, str] | None = None  # blocked, fix: what tells faults apart
        self._quiet_until = 0.0

    def look(self, health: Health, now: float, *, came_through: bool) -> None:
        """Say it when the target went away or came back; `came_through`: it has just done what was asked."""
        away = (health.blocked, health.fix) if health.reason else None
        if away is not None and away != self._away and now >= self._quiet_until:
            fix = f"; {health.fix}" if health.fix else ""
            outage_log.warning("replication to %s is held up: %s%s", self._name, health.reason, fix)
            if self._away is not None:  # faults that take turns would fill the log
                self._quiet_until = now + QUIET_S
            self._away = away
        elif self._away is not None and away is None and came_through:
            outage_log.info("replication to %s continues", self._name)
            self._away, self._quiet_until = None, now + QUIET_S
