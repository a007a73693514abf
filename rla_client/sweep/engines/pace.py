"""How many runs an engine hands on beyond those that run, so that no core waits for the driver."""

from __future__ import annotations

import time
from collections import deque

PACE_S = 1.0  # over which it is counted what ends
AHEAD_S = 0.25  # so much of what ends is handed on ahead


class Pace:
    """Counts ends; runs of more than some seconds lead to none ahead."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()  # when how many

    def count(self, ended: int) -> None:
        """So many ended now."""
        self._ends.append((time.monotonic(), ended))

    def ahead(self) -> int:
        """How many to hand on beyond those that run."""
        now = time.monotonic()
        while self._ends and now - self._ends[0][0] > PACE_S:
            self._ends.popleft()
        return int(sum(count for _, count in self._ends) * AHEAD_S / PACE_S)
