"""Database that the worker replicates."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from rla_agent.replicate import status, target_config
from rla_agent.replicate.prune.automatic_pruning import RetainedDatabase
from rla_agent.replicate.registry import RegisteredDatabase
from rla_agent.replicate.worker.database import TargetDatabase
from rla_agent.replicate.worker.outage_log import Outage
from rla_agent.store.config_reader import Changed

RATE_WINDOW_S: Final = 10.0
ESTIMATE_AFTER_S: Final = 10.0  # of sending without a pause; before that no estimate is given
ESTIMATE_WINDOW_S: Final = 60.0


@dataclass
class ServedDatabase:
    """A database being replicated, with the configuration it was set up from: `changed` as in `Reading`.

    `rates`: recent (time, bytes written); `busy`: (time, bytes passed) since the senders were idle.
    """

    entry: RegisteredDatabase
    changed: Changed
    database: TargetDatabase
    target: target_config.Target
    outage: Outage
    rates: list[tuple[float, int]] = field(default_factory=list)
    busy: list[tuple[float, int]] = field(default_factory=list)
    quiet_until: float = 0.0
    kept: RetainedDatabase | None = None


def database_snapshot(served: ServedDatabase, now: float) -> dict[str, Any]:
    """Status of a database as plain data."""
    counters, health = served.database.counters, served.database.health
    unread = served.database.scanner.unread
    served.rates.append((now, counters.written_bytes))
    while len(served.rates) > 2 and now - served.rates[0][0] > RATE_WINDOW_S:  # noqa: PLR2004
        served.rates.pop(0)
    (first, old), (last, new) = served.rates[0], served.rates[-1]
    passed = served.database.link.passed_bytes
    if not served.database.link.busy:
        served.busy.clear()  # an estimate is of an unbroken stretch of sending
    else:
        served.busy.append((now, passed))
        while len(served.busy) > 2 and now - served.busy[0][0] > ESTIMATE_WINDOW_S:  # noqa: PLR2004
            served.busy.pop(0)
    word = "blocked" if health.blocked else "retrying" if health.tries else "ok"
    return {
        "number": served.database.number,
        "health": word,
        "reason": health.reason,
        "fix": health.fix,
        "problem": served.database.changes.problem,
        "parts": [*served.database.scanner.problems(), *served.database.parts.problems()],
        "unread": [
            {"path": os.fsdecode(path), "reason": why.reason, "fix": why.fix}
            for path, why in islice(unread.items(), status.MAX_PARKED)
        ],
        "unread_folders": len(unread),
        "tries": health.tries,
        "retry_in_s": max(0.0, health.not_before - now),
        "connections": served.database.link.connections,
        "rate_bytes_s": (new - old) / (last - first) if last > first else 0.0,
        "sending_bytes_s": _rate_of(served.busy),
        "last_success": counters.last_success,
        "sent_files": counters.sent_files,
        "sent_bytes": counters.sent_bytes,
        "written_bytes": counters.written_bytes,
        "kept": counters.kept,
        "mended": served.database.confirmations.mended,
    }


def _rate_of(points: list[tuple[float, int]]) -> float:
    """Bytes per second; 0 before there are enough samples."""
    if not points or points[-1][0] - points[0][0] < ESTIMATE_AFTER_S:
        return 0.0
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
