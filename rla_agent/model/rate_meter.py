"""Rows per second of live runs. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

RATE_WINDOW_S = 10.0


class RateMeter:
    """Rows per second of each run over the last RATE_WINDOW_S."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def sample(self, now: float, rows: Mapping[str, int]) -> None:
        """Note how many rows each live run has; `now` in seconds of any steady clock."""
        for gone in self._samples.keys() - rows.keys():
            del self._samples[gone]
        for run, count in rows.items():
            samples = self._samples.setdefault(run, deque())
            samples.append((now, count))
            while len(samples) > 2 and samples[1][0] <= now - RATE_WINDOW_S:  # noqa: PLR2004 - a span needs two
                samples.popleft()

    def rate(self, run: str, now: float, rows: int) -> float | None:
        """Rows per second up to now, None when the run was seen only once."""
        samples = self._samples.get(run)
        if not samples or now - samples[0][0] <= 0:
            return None
        return max(0.0, (rows - samples[0][1]) / (now - samples[0][0]))
