"""Text chart of a curve in block characters.

It needs neither pandas nor numpy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import cut, width

if TYPE_CHECKING:
    from rla_client.database.curves.chart_points import Points


CHART_ROWS = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LINE = "─"


def chart_text(title: str, points: Points, room: int | None = None, *, sampled: bool = False) -> str:
    """Chart of a curve with `CHART_ROWS` lines; points in one column of the terminal are averaged.

    NaN and infinite values are not drawn, but counted in the title; a metric with only such values is one
    line of text. Equal values, or a single one, are a straight line with the value beside it.

    Args:
        title: name of the metric.
        points: (x, y) pairs.
        room: width in columns; None uses the terminal's.
        sampled: whether the points are a sample.
    """
    room = width() if room is None else room
    good = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    lost = len(points) - len(good)
    values = f"the {len(points)} values sampled" if sampled else f"{len(points)} values"
    if not good:
        return cut(f"{clean(title)}: " + (f"all {values} are nan or inf" if lost else "no numbers yet"), room)
    note = f"  ({lost} of {values} not drawn: nan or inf)" if lost else ""
    xs, ys = zip(*good, strict=True)
    across, up = (min(xs), max(xs)), (min(ys), max(ys))
    flat = up[0] == up[1]
    labels = [f"{up[1]:.4g}", f"{up[0]:.4g}"]
    margin = max(map(len, labels))
    columns = max(room - margin - 2, 10)
    begin, end = f"{across[0]:.6g}", f"{across[1]:.6g}"
    lines = [cut(clean(title), max(room - len(note), 10)) + note]
    if flat:
        lines.append(f"{labels[0]} │{_LINE * (1 if begin == end else columns)}")
    levels = [] if flat else _levels(good, across, up, columns)
    for row in range(CHART_ROWS - 1, -1, -1) if levels else ():
        label = labels[0] if row == CHART_ROWS - 1 else labels[1] if row == 0 else ""
        marks = "".join(_block(level, row) for level in levels)
        lines.append(f"{label:>{margin}} │{marks}".rstrip())
    one_x = flat and begin == end
    lines.append(" " * (margin + 2) + begin + ("" if one_x else end.rjust(columns - len(begin))))
    return "\n".join(lines)


def _levels(
    points: Points, across: tuple[float, float], up: tuple[float, float], columns: int
) -> list[float | None]:
    """Height of each column of the chart, 0 to 1; None before the first point."""
    sums = [0.0] * columns
    counts = [0] * columns
    for x, y in points:
        column = int(_part(x, *across, 0.0) * (columns - 1))
        sums[column] += _part(y, *up, 0.5)
        counts[column] += 1
    levels: list[float | None] = []
    for total, count in zip(sums, counts, strict=True):
        before = levels[-1] if levels else None
        levels.append(total / count if count else before)  # no gaps if there are fewer points than columns
    return levels


def _part(value: float, low: float, high: float, flat: float) -> float:
    """Position of a value between two bounds, 0 to 1; halving first prevents overflow of their distance."""
    reach = high / 2 - low / 2
    return min((value / 2 - low / 2) / reach, 1.0) if reach > 0 else flat


def _block(level: float | None, row: int) -> str:
    if level is None:
        return " "
    eighths = max(round(level * CHART_ROWS * 8), 1) - row * 8
    return _BLOCKS[min(max(eighths, 0), 8)]
