"""Pauses between reads or appends of growing files."""

from __future__ import annotations

from typing import Final

PACE_S: Final = 0.5  # between two reads of one growing file,
READ_SHARE: Final = 20  # and at least so many times as long as the last one took to read the sent bytes
MAX_RUNS: Final = 20_000  # runs whose appends are remembered


def pace_s(read_s: float) -> float:
    """Seconds until a growing file is read again, after one that took `read_s`: 5 % of the time at most."""
    return max(PACE_S, READ_SHARE * read_s)


class Appends:
    """Times of appends to runs where each request has a cost: one request appends to all files of a run."""

    def __init__(self) -> None:
        # run → times of the last append and of the next one; 0: none is due
        self._runs: dict[bytes, tuple[float, float]] = {}

    def next(self, item: bytes, seen: float, now: float, every_s: float) -> float:
        """Time of a run's next append: at once after a pause, else `every_s` after the first waiting bytes.

        Counted from the last append instead, bytes that came just after it would wait as long, for more
        requests.

        Args:
            item: the run.
            seen: when the first waiting bytes were seen.
            now: on the same clock.
            every_s: 0: at once.

        Returns:
            `now` if it is due: then it counts as made, and all files of the run go with it.
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
