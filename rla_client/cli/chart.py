"""Curves for a terminal: points of a run's metrics, read without pandas, and drawn in block characters.

Of a chain (see `chains`) the rows of all its items that count make one curve. A large table is
sampled, so that `rla show` stays quick; then rows are counted by time-step alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.layout import LOG, TIME_STEP
from rla_client.database.chains import Link, chain_names, chain_of
from rla_client.database.csv_table import Sample, sample_rows
from rla_client.database.records import PROGRESS_FILE
from rla_client.database.text import clean, cut, width

CHART_ROWS = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LINE = "─"

Points = list[tuple[float, float]]


def chart_points(
    data_root: Path, table: str, index: str, choose: Sequence[str]
) -> tuple[dict[str, Points], bool]:
    """Points (x, y) of some columns of a run, from the beginning of its chain; x is the time-step.

    Args:
        data_root: the database.
        table: task table.
        index: the run, or the last item of a chain that is wanted.
        choose: columns.

    Returns:
        Points by column, those that were recorded as NaN or infinite too, without columns that
        there are not; and whether tables were sampled. Without a time-step x is the row.

    Raises:
        BrokenFileError: an item's table is none.
        OSError: it cannot be opened; items of a chain without a table have no points.
    """
    chain = chain_of(data_root, table, index)
    found: dict[str, Points] = {}
    sampled = False
    before = 0
    for link in chain:
        try:
            sample = sample_rows(
                f"{data_root}/{LOG}/{table}/{link.index}/{PROGRESS_FILE}", [TIME_STEP, *choose]
            )
        except FileNotFoundError:
            if len(chain) == 1:
                raise
            continue
        sampled = sampled or not sample.whole
        keep = _counting(sample, link)
        steps = sample.columns.get(TIME_STEP)
        for name in choose:
            cells = sample.columns.get(name)
            if cells is None:
                continue
            points = found.setdefault(name, [])
            for row in keep:
                x, y = steps[row] if steps is not None else float(before + row), cells[row]
                if x is not None and y is not None:
                    points.append((x, y))
        before += len(keep)
    return found, sampled


def chart_names(data_root: Path, table: str, index: str) -> list[str]:
    """Columns of a run's table, of a chain those of all its items."""
    return chain_names(chain_of(data_root, table, index), f"{data_root}/{LOG}/{table}")


def _counting(sample: Sample, link: Link) -> list[int]:
    """The rows of an item that count in its chain."""
    rows = list(range(sample.rows))
    steps = sample.columns.get(TIME_STEP)
    if link.rows is not None and sample.whole:
        return rows[: link.rows]
    if link.time_step is not None and steps is not None:
        return [row for row in rows if (step := steps[row]) is not None and step <= link.time_step]
    return rows


def chart_text(title: str, points: Points, room: int | None = None, *, sampled: bool = False) -> str:
    """A curve, `CHART_ROWS` high, averaged over what falls into one column of the terminal.

    What is NaN or infinite is not drawn, but counted in the title; a metric of such values alone
    is one line. Equal values, and one row, are a straight line with the value beside it.

    Args:
        title: the metric.
        points: (x, y).
        room: columns; None takes the terminal's.
        sampled: the points are a part of all.
    """
    room = width() if room is None else room
    good = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    lost = len(points) - len(good)
    values = f"the {len(points)} values looked at" if sampled else f"{len(points)} values"
    if not good:
        return cut(f"{clean(title)}: " + (f"all {values} are nan or inf" if lost else "no numbers yet"), room)
    note = f"  ({lost} of {values} not drawn: nan or inf)" if lost else ""
    box = _Box.around(good)
    if box.low == box.high:
        return "\n".join([cut(clean(title), max(room - len(note), 10)) + note, *_flat(box, room)])
    labels = [f"{box.high:.4g}", f"{box.low:.4g}"]
    margin = max(len(label) for label in labels)
    columns = max(room - margin - 2, 10)
    levels = _levels(good, box, columns)
    lines = [cut(clean(title), max(room - len(note), 10)) + note]
    for row in range(CHART_ROWS - 1, -1, -1):
        label = labels[0] if row == CHART_ROWS - 1 else labels[1] if row == 0 else ""
        marks = "".join(_block(level, row) for level in levels)
        lines.append(f"{label:>{margin}} │{marks}".rstrip())
    begin, end = f"{box.first:.6g}", f"{box.last:.6g}"
    lines.append(" " * (margin + 2) + begin + end.rjust(columns - len(begin)))
    return "\n".join(lines)


def _flat(box: _Box, room: int) -> list[str]:
    """The two lines of a curve without heights; from where to where it goes, or at which x it is."""
    label = f"{box.low:.4g}"
    columns = max(room - len(label) - 2, 10)
    begin, end = f"{box.first:.6g}", f"{box.last:.6g}"
    axis = begin if begin == end else begin + end.rjust(columns - len(begin))
    return [f"{label} │{_LINE * (1 if begin == end else columns)}", " " * (len(label) + 2) + axis]


@dataclass(frozen=True, slots=True)
class _Box:
    """The range of a curve."""

    first: float
    last: float
    low: float
    high: float

    @classmethod
    def around(cls, points: Points) -> _Box:
        xs, ys = zip(*points, strict=True)
        return cls(min(xs), max(xs), min(ys), max(ys))


def _levels(points: Points, box: _Box, columns: int) -> list[float | None]:
    """Height of each column of the chart, 0 to 1; None before the first point."""
    sums = [0.0] * columns
    counts = [0] * columns
    for x, y in points:
        column = int(_part(x, box.first, box.last, 0.0) * (columns - 1))
        sums[column] += _part(y, box.low, box.high, 0.5)
        counts[column] += 1
    levels: list[float | None] = []
    for total, count in zip(sums, counts, strict=True):
        before = levels[-1] if levels else None
        levels.append(total / count if count else before)  # fewer points than columns: no gaps
    return levels


def _part(value: float, low: float, high: float, flat: float) -> float:
    """Where a value lies between two, 0 to 1; halved first, for their distance may be no double."""
    reach = high / 2 - low / 2
    return min((value / 2 - low / 2) / reach, 1.0) if reach > 0 else flat


def _block(level: float | None, row: int) -> str:
    if level is None:
        return " "
    eighths = max(round(level * CHART_ROWS * 8), 1) - row * 8
    return _BLOCKS[min(max(eighths, 0), 8)]
