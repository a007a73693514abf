"""Files of the results that no picture is made for."""

from __future__ import annotations

import csv
import io

import pytest

from rla_client.contract.text.csv_lines import rows_text
from rla_client.media.table_file import table_csv

HOSTILE = [
    '"',
    "a\rb",
    "a\nb",
    "a\r\nb",
    "a,b",
    "",
    " ",
    "\0",
    "=1+1",
    "é",
    "\ud800",
    "\u2028",
    "x" * 200_000,
]


@pytest.mark.parametrize("cell", HOSTILE)
def test_a_table_has_the_lines_of_all_our_csv_files(cell: str) -> None:
    rows: list[list[object]] = [[cell, 1, 0.5, True], [None, cell, -1, float("nan")]]
    content = table_csv(["a", "b", "c", "d"], rows, str)
    assert (
        content.decode()
        == rows_text([["a", "b", "c", "d"], *rows]).encode(errors="backslashreplace").decode()
    )


def test_a_list_in_a_cell_is_json() -> None:
    content = table_csv(["a"], [[[1, {"b": "é"}]]], str).decode()
    assert list(csv.reader(io.StringIO(content))) == [["a"], ['[1, {"b": "é"}]']]
