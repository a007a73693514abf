from __future__ import annotations

import csv
import io
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.text.csv_lines import rows_text, split_rows, stream_rows

CELLS = st.text(st.sampled_from('ab,"\r\n \u2028\x0c\x85\t;'), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=8))
def test_every_reader_gives_back_what_was_written(rows: list[list[str]]) -> None:
    text = rows_text([["first", "second"], *rows])
    assert text.endswith("\n")
    assert list(csv.reader(io.StringIO(text, newline="")))[1:] == rows
    assert list(split_rows(text))[1:] == rows
    frame = pd.read_csv(
        io.StringIO(text, newline=""), dtype=str, keep_default_na=False, skip_blank_lines=False
    )
    assert frame.to_numpy().tolist() == rows


def test_lines_end_with_a_newline_alone() -> None:
    assert rows_text([["a", 1.5], ["x\ry", None]]) == 'a,1.5\n"x\ry",\n'
    assert math.isnan(float(next(iter(split_rows(rows_text([[float("nan")]]))))[0]))


def test_tables_that_quote_nothing_are_read_as_before() -> None:
    assert list(split_rows("a,b\r\n1,2\r3,4\n")) == [["a", "b"], ["1", "2"], ["3", "4"]]
    assert list(split_rows("a,b\n1,no\u2028line\x0cend\n")) == [["a", "b"], ["1", "no\u2028line\x0cend"]]


def test_a_nul_is_escaped_and_passed_over() -> None:
    assert rows_text([["a\0", 1], ["b", "c"]]) == "a\\x00,1\nb,c\n"
    assert list(split_rows("a,b\n1,2\n\0\0")) == [["a", "b"], ["1", "2"]]


LONG = "x" * (csv.field_size_limit() + 1)
TABLES = (
    [["a", "b"], ["1", LONG], ["2", "y"]],
    [["a", LONG], ["1", "2"]],
    [["a", "b"], ['q"uo,te\n', LONG + "\n" + LONG], ["", "end"]],
    [["a"], [LONG + '"'], ["\n"]],
)


@pytest.mark.parametrize("table", TABLES)
def test_cells_are_read_however_long_they_are(table: list[list[str]]) -> None:
    """And nobody's limit of the csv module is changed for that."""
    usual = csv.field_size_limit()
    text = rows_text(table)
    assert split_rows(text) == table
    assert list(stream_rows(text.splitlines(keepends=True))) == table
    assert csv.field_size_limit() == usual


def test_the_limit_that_a_program_set_makes_no_difference() -> None:
    usual = csv.field_size_limit(3)
    try:
        assert split_rows('a,b\n1,"long, text"\n') == [["a", "b"], ["1", "long, text"]]
    finally:
        csv.field_size_limit(usual)
