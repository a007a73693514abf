"""Lightweight reader of points for a small chart.

A large table is sampled, so that a chart stays quick; then the valid rows are known by time-step alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rla_client.contract.layout import LOG, TIME_STEP
from rla_client.database.curves.chain_curves import chain_names
from rla_client.database.curves.progress_csv import PROGRESS_FILE, TRUTH_VALUES, CsvTable
from rla_client.database.curves.stream_tables import split_role, table_of
from rla_client.database.tree.chains import ChainLink, chain_of

Points = list[tuple[float, float]]
MAX_SAMPLED_WHOLE_BYTES = 1 << 20  # the csv module reads it in about 10 ms


@dataclass(frozen=True, slots=True)
class Sample:
    """Some columns of a table, with all rows or a sample of them.

    Attributes:
        columns: name → a value for each row, None if no number was recorded.
        rows: number of these rows.
        whole: whether they are all rows of the table.
    """

    columns: dict[str, list[float | None]]
    rows: int
    whole: bool


def sample_rows(path: str | os.PathLike[str], names: Sequence[str], points: int = 400) -> Sample:
    """Some columns for a small chart: all rows of a small file, `points` rows spread over a large one.

    Needs neither numpy nor pandas.

    Raises:
        BrokenFileError: the file is not a table.
        OSError: the file cannot be opened.
    """
    with CsvTable(path) as table:
        whole = table.size <= MAX_SAMPLED_WHOLE_BYTES
        block = table.whole_rows() if whole else b"".join(_lines(table, points))
        rows = [row for row in table.cells(block) if row]
    wanted = {name: table.columns.index(name) for name in names if name in table.columns}
    found = {
        name: [_recorded(row[place]) if place < len(row) else None for row in rows]
        for name, place in wanted.items()
    }
    return Sample(found, len(rows), whole)


def _recorded(cell: str) -> float | None:
    """The number in a cell, NaN if that was recorded; None for text and empty cells."""
    try:
        return float(cell)
    except ValueError:
        return TRUTH_VALUES.get(cell.strip())


def _lines(table: CsvTable, points: int) -> Iterator[bytes]:
    last = -1
    for point in range(points):
        here, line = table.line_after(table.start + (table.size - table.start) * point // points)
        if here != last and line.endswith(b"\n") and b'"' not in line:
            yield line
        last = here


def chart_points(
    data_root: Path, table: str, index: str, choose: Sequence[str]
) -> tuple[dict[str, Points], bool]:
    """Points (x, y) of some columns of a run, from the beginning of its chain; x is the time-step.

    Args:
        data_root: the database.
        table: task table.
        index: the run, or the last item of its chain.
        choose: columns.

    Returns:
        Points by column, including those recorded as NaN or infinite, without missing columns; and whether
        tables were sampled. Without a time-step x is the number of the row.

    Raises:
        BrokenFileError: an item's table is broken.
        OSError: a table cannot be opened; but items of a chain without a table have no points.
    """
    chain = chain_of(data_root, table, index)
    found: dict[str, Points] = {}
    sampled = False
    before = 0
    for link in chain:
        path = f"{data_root}/{LOG}/{table}/{link.index}/{PROGRESS_FILE}"
        try:
            sample = sample_rows(path, [TIME_STEP, *choose])
        except FileNotFoundError:
            sample = None
        of_roles = _samples_of_roles(
            path, [one for one in choose if sample is None or one not in sample.columns]
        )
        if sample is None and not of_roles and len(chain) == 1:
            raise FileNotFoundError(path)
        for one in [*([] if sample is None else [sample]), *of_roles]:
            sampled = sampled or not one.whole
            keep = _counting(one, link if one is sample else replace(link, rows=None))
            steps = one.columns.get(TIME_STEP)
            for name in choose:
                cells = one.columns.get(name)
                if cells is None:
                    continue
                points = found.setdefault(name, [])
                for row in keep:
                    x, y = steps[row] if steps is not None else float(before + row), cells[row]
                    if x is not None and y is not None:
                        points.append((x, y))
            before += len(keep)
    return found, sampled


def _samples_of_roles(path: str, names: Sequence[str]) -> list[Sample]:
    """A sample of the table of each role in the names."""
    samples = []
    split = {name: split_role(name) for name in names}
    for role in dict.fromkeys(role for _, role in split.values() if role):
        wanted = {metric: name for name, (metric, of) in split.items() if of == role}
        with suppress(FileNotFoundError):
            sample = sample_rows(table_of(path, role), [TIME_STEP, *wanted])
            columns = {wanted.get(metric, metric): cells for metric, cells in sample.columns.items()}
            samples.append(replace(sample, columns=columns))
    return samples


def chart_names(data_root: Path, table: str, index: str) -> list[str]:
    """Columns of a run's table, or of all items of its chain."""
    return chain_names(chain_of(data_root, table, index), f"{data_root}/{LOG}/{table}")


def _counting(sample: Sample, link: ChainLink) -> list[int]:
    """The valid rows of an item in its chain."""
    rows = list(range(sample.rows))
    steps = sample.columns.get(TIME_STEP)
    if link.rows is not None and sample.whole:
        return rows[: link.rows]
    if link.time_step is not None and steps is not None:
        return [row for row in rows if (step := steps[row]) is not None and step <= link.time_step]
    return rows
