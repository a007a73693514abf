"""Reading the header of a CSV that is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_agent.align import read_header
from rla_agent.sinks.csv_table import to_csv


@pytest.mark.parametrize(
    "columns",
    [
        ["a", "b"],
        ["", "b"],
        ["a", ""],
        ['"', '""', 'a"b', '","'],
        ["a,b", "c\nd", "e\r\nf", "g\rh", " i "],
        ["x" * 300_000, "y,\n" * 200_000],
        [f"key{number}" for number in range(65_538)],
    ],
)
def test_a_header_comes_back_whatever_its_names_are(tmp_path: Path, columns: list[str]) -> None:
    (tmp_path / "progress.csv").write_bytes(to_csv([columns, [1] * len(columns)]))
    descriptor = os.open(tmp_path / "progress.csv", os.O_RDONLY)
    try:
        assert read_header(descriptor) == columns
    finally:
        os.close(descriptor)
