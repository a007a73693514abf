"""Automatic pruning (`AGENT.retention`).

It is off by default, and runs in a thread with connections of its own.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.prune.prune_plan import PruneRules
from rla_agent.replicate.prune.pruner import Pruner
from rla_client.contract.errors import RlaError

if TYPE_CHECKING:
    from rla_agent.replicate.target_config import Target
    from rla_client.config.schema import AgentConfig


FIRST_S: Final = 5.0  # after the start of the process
EVERY_S: Final = 600.0
DAY_S: Final = 86400.0
MAX_WARNINGS: Final = 20  # of one pass: a master that lost its disk would fill the log
_log = logging.getLogger("rla_agent.replicate")


@dataclass(frozen=True, slots=True)
class RetainedDatabase:
    """A database whose config asks for retention."""

    root: str
    target: Target
    settings: AgentConfig


def rules_of(settings: AgentConfig, root: str) -> PruneRules:
    """Rules of `AGENT.retention_…` for the disk of `root`.

    Raises:
        OSError: the data root is not there.
    """
    disk = os.statvfs(root)
    return PruneRules(
        kinds=settings.retention_kinds,
        older_than_s=settings.retention_age_days * DAY_S,
        max_bytes=settings.retention_max_bytes,
        free_bytes=int(settings.retention_free_fraction * disk.f_blocks * disk.f_frsize),
        keep_newest=settings.retention_keep_newest,
    )


class AutomaticPruning:
    """Starts passes periodically; `poll` never waits."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._thread: threading.Thread | None = None
        self._due = time.monotonic() + FIRST_S

    def poll(self, now: float, kept: Sequence[RetainedDatabase]) -> None:
        """Begin a pass over these databases when it is time for one; `now`: monotonic seconds."""
        if now < self._due or not kept or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = now + EVERY_S
        self._thread = threading.Thread(target=self._pass, args=(list(kept),), name="retention", daemon=True)
        self._thread.start()

    def _pass(self, kept: list[RetainedDatabase]) -> None:
        for one in kept:
            try:
                self._prune(one)
            except (RlaError, OSError, sqlite3.Error) as error:
                _log.warning("retention of %s: %s", one.root, error)
            except Exception:  # noqa: BLE001 - the top of a thread; the next pass tries again
                _log.exception("retention of %s", one.root)

    def _prune(self, one: RetainedDatabase) -> None:
        pruner = Pruner(self._state, one.root, one.target.name)
        gone = size = stays = 0
        try:
            plan = pruner.plan(rules_of(one.settings, one.root), time.time())
            if not plan.chosen:
                return
            with closing(one.target.open()) as session:
                for entry in pruner.carry_out(plan, session):
                    if not entry.stays:
                        gone, size = gone + 1, size + entry.size
                        continue
                    stays += 1
                    if stays <= MAX_WARNINGS:
                        _log.warning("retention: %s stays: %s", entry.path, entry.stays)
        finally:
            pruner.close()
            if gone:
                _log.info("retention of %s: %d file(s), %d bytes freed here", one.root, gone, size)
            if stays > MAX_WARNINGS:
                _log.warning("retention of %s: %d more file(s) stay", one.root, stays - MAX_WARNINGS)
