"""Comparison of two runs' rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.text.csv_lines import stream_rows

MAX_DIFFERENCES = 10  # that are reported
_TIME_COLUMN = "timestamp"
_TIME_PREFIXES = ("time_used/", "wait_", "time/")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences between two runs' rows, time columns aside.

    Attributes:
        rows: number of rows of the first and of the second run.
        differences: the first few, as (row number from 0, column, first value, second value).
    """

    rows: tuple[int, int]
    differences: tuple[tuple[int, str, str, str], ...]

    @property
    def equal(self) -> bool:
        """Whether both runs have the same rows."""
        return self.rows[0] == self.rows[1] and not self.differences


def compare_rows(first: Path, second: Path) -> Comparison:
    """Compare two progress.csv files by the text of their cells, time columns aside."""
    one, two = _read(first), _read(second)
    differences: list[tuple[int, str, str, str]] = []
    for number, (left, right) in enumerate(zip(one, two, strict=False)):
        for column in sorted({*left, *right}):
            if column == _TIME_COLUMN or column.startswith(_TIME_PREFIXES):
                continue
            a, b = left.get(column) or "", right.get(column) or ""
            if a != b and len(differences) < MAX_DIFFERENCES:
                differences.append((number, column, a, b))
    return Comparison((len(one), len(two)), tuple(differences))


def _read(path: Path) -> list[dict[str, str]]:
    with suppress(FileNotFoundError), open(path, newline="", encoding="utf-8") as file:
        columns, *rows = [row for row in stream_rows(file) if row] or [[]]
        return [dict(zip(columns, row, strict=False)) for row in rows]
    return []
