"""Curves in braille characters.

A cell has eight dots. Several curves share a frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rla_client.database.curves.chart_points import Points

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a cell
_EMPTY = 0x2800


@dataclass(frozen=True, slots=True)
class DrawingBounds:
    """A drawing, with the values of the lowest and highest dots and the x at the left and right."""

    cells: list[list[tuple[str, int]]]  # rows from the top: (character, number of its curve or -1)
    low: float
    high: float
    first: float
    last: float


def draw(curves: Sequence[Points], columns: int, rows: int) -> DrawingBounds | None:
    """Draw curves in a frame of `columns` x `rows` cells; None if no point is finite.

    Consecutive points are joined by a line. A cell that several curves share belongs to the last of them.
    """
    finite = [[(x, y) for x, y in curve if math.isfinite(x) and math.isfinite(y)] for curve in curves]
    every = [point for curve in finite for point in curve]
    if not every or columns < 1 or rows < 1:
        return None
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    dots = [[0] * columns for _ in range(rows)]
    owner = [[-1] * columns for _ in range(rows)]
    for number, curve in enumerate(finite):
        places = [
            (_part(x, first, last, columns * 2), rows * 4 - 1 - _part(y, low, high, rows * 4))
            for x, y in curve
        ]
        for begin, end in zip(places, places[1:] or places, strict=False):
            for column, row in _line(begin, end):
                dots[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
                owner[row // 4][column // 2] = number
    cells = [
        [(chr(_EMPTY + dot) if dot else " ", who) for dot, who in zip(line, owners, strict=True)]
        for line, owners in zip(dots, owner, strict=True)
    ]
    return DrawingBounds(cells, low, high, first, last)


def _part(value: float, low: float, high: float, count: int) -> int:
    """The dot of `count` for a value; halves avoid an overflow of the range."""
    reach = high / 2 - low / 2
    share = (value / 2 - low / 2) / reach if reach > 0 else 0.5
    return min(int(share * count), count - 1)


def _line(begin: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots between two dots, both included."""
    count = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    return [
        (
            begin[0] + round((end[0] - begin[0]) * step / count),
            begin[1] + round((end[1] - begin[1]) * step / count),
        )
        for step in range(count + 1)
    ]
