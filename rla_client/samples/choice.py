"""Choice of samples within the limits. Pure.

Three quarters of the room go to whole groups in the order of a hash of their name, so that the same prompts
are kept at each step if they recur. Half of the rest goes to the least and the greatest rewards in turn, and
the remainder to random samples.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class SampleCandidate(NamedTuple):
    """A sample that could be kept."""

    group: str
    reward: float | None
    size: int


class _Room:
    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size
        self.kept: set[int] = set()

    def take(
        self, numbers: Iterable[int], candidates: Sequence[SampleCandidate], rows: float, size: float
    ) -> bool:
        """Keep all of these unless so many rows or bytes would be exceeded."""
        new = [number for number in numbers if number not in self.kept]
        bytes_ = sum(candidates[number].size for number in new)
        if len(self.kept) + len(new) > rows or self.taken + bytes_ > size:
            return False
        self.kept.update(new)
        self.taken += bytes_
        return True

    taken: int = 0


def choose(candidates: Sequence[SampleCandidate], max_rows: int, max_bytes: int, seed: str) -> list[int]:
    """Numbers of the samples that stay, in order.

    Args:
        candidates: all of them.
        max_rows: that may stay.
        max_bytes: of all that stay.
        seed: of the random part, such as the time-step.
    """
    if len(candidates) <= max_rows and sum(one.size for one in candidates) <= max_bytes:
        return list(range(len(candidates)))
    room = _Room(max_rows, max_bytes)
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(candidates):
        groups.setdefault(one.group, []).append(number)
    for name in sorted(groups, key=lambda name: (zlib.crc32(name.encode("utf-8", "replace")), name)):
        if not room.take(groups[name], candidates, max_rows * 3 / 4, max_bytes * 3 / 4):
            break
    for number in _extremes(candidates, room.kept):
        if not room.take([number], candidates, max_rows * 7 / 8, max_bytes * 7 / 8):
            break
    for number in sorted(range(len(candidates)), key=lambda one: zlib.crc32(f"{seed}-{one}".encode())):
        room.take([number], candidates, max_rows, max_bytes)
        if len(room.kept) >= max_rows:
            break
    return sorted(room.kept)


def _extremes(candidates: Sequence[SampleCandidate], kept: set[int]) -> Iterable[int]:
    """Those with the least, the greatest, the second least reward, and so on."""
    numbers = [
        number
        for number, one in enumerate(candidates)
        if number not in kept and one.reward is not None and not math.isnan(one.reward)
    ]
    numbers.sort(key=lambda number: candidates[number].reward or 0.0)
    low, high = 0, len(numbers) - 1
    while low <= high:
        yield numbers[low]
        if low != high:
            yield numbers[high]
        low, high = low + 1, high - 1
