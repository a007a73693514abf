"""Points of a run's columns, read without pandas or numpy: for charts in a terminal.

Of a chain (see `chains`) the rows of all its items that count make one curve. A large table is
sampled, so that a look stays quick; then rows are counted by time-step alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rla_client.contract.layout import LOG, TIME_STEP
from rla_client.database.chains import Link, chain_names, chain_of
from rla_client.database.csv_table import Sample, sample_rows
from rla_client.database.records import PROGRESS_FILE

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
