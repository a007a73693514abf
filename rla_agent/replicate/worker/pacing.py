"""Pauses between reads or appends of growing files."""

from __future__ import annotations

from typing import Final

PACE_S: Final = 0.5  # between two looks at the content of one growing file,
READ_SHARE: Final = 20  # and at least so many times as long as the last one took to read what was sent before
MAX_RUNS: Final = 20_000  # whose appends are remembered


def pace_s(read_s: float) -> float:
    """Seconds until a growing file is read again, after one that took `read_s`: 5 % of the time at most."""
    return max(PACE_S, READ_SHARE * read_s)


class Appends:
    """When runs are appended to where each request costs: one takes what all files of a run got."""

    def __init__(self) -> None:
        # by run: when the last append was made, and when the next one goes; 0: nothing waits for it yet
        self._runs: dict[bytes, tuple[float, float]] = {}

    def next(self, item: bytes, seen: float, now: float, every_s: float) -> float:
        """When the next append to a run is: at once after a pause, else `every_s` after what waits came.

        Counted from the last append instead, what came just after that would wait as long, for more requests.

        Args:
            item: the run.
            seen: when the first of what waits was seen.
            now: on the same clock.
            every_s: 0: at once.

        Returns:
            `now` if it is now: then it counts as made, and all files of the run go with it.
        """
        last, at = self._runs.get(item, (float("-inf"), 0.0))
        if last == now or every_s <= 0:
            return now
        if at <= last and 0 <= now - last < every_s:
            at = min(max(seen, last), now) + every_s
        if not now < at <= now + every_s:
            last, at = now, 0.0
        if len(self._runs) > MAX_RUNS:
            self._runs.clear()
        self._runs[item] = last, at
        return max(at, now)
