"""Pace of short runs in an engine."""

from __future__ import annotations

import time
from collections import deque

PACE_S = 1.0  # window in which ends are counted
AHEAD_S = 0.25  # runs that end in this time are handed on ahead


class Pace:
    """Number of runs that an engine hands on beyond the running ones, so that no core waits for the driver.

    It follows from the rate of ends; runs of more than a few seconds lead to none.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()  # when how many

    def count(self, ended: int) -> None:
        """Count ends as of now."""
        self._ends.append((time.monotonic(), ended))

    def ahead(self) -> int:
        """Number of runs to hand on beyond the running ones."""
        now = time.monotonic()
        while self._ends and now - self._ends[0][0] > PACE_S:
            self._ends.popleft()
        return int(sum(count for _, count in self._ends) * AHEAD_S / PACE_S)
