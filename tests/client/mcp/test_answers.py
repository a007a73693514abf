"""Answers are short, and what stands in them cannot pass for more than a value."""

from __future__ import annotations

import csv

import pytest

from rla_client.mcp.answers import MAX_CELL, MAX_CHARS, bounded, cell, pairs, table


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (0.30000000000000004, "0.3"),
        (True, "True"),
        (["a", "b"], "a b"),
        ("a\nb\x1b[2J\u202e", "a?b?[2J?"),
        ("\udcff", "?"),
        ("x" * 500, "x" * (MAX_CELL - 1) + "…"),
    ],
)
def test_cells(value: object, expected: str) -> None:
    assert cell(value) == expected


def test_table_is_csv_with_notes() -> None:
    told = table(["run", "a,b"], [["1", 'say "x"'], [None, 2]], ["more\n\x1b", ""])
    *lines, note = told.split("\n")
    assert list(csv.reader(lines)) == [["run", "a,b"], ["1", 'say "x"'], ["", "2"]]
    assert note == "(more??)"


def test_table_is_cut_where_an_answer_ends() -> None:
    told = table(["value"], [["y" * 100]] * 1000, ["note"])
    assert len(told) <= MAX_CHARS
    *rows, note, cut = told.split("\n")
    assert note == "(note)"
    assert cut == f"(cut after {len(rows) - 1} of 1000 rows: ask for fewer columns, or a lower limit)"


def test_row_that_no_answer_holds() -> None:
    told = table([f"name {place}" for place in range(5000)], [[1] * 5000])
    assert told == "(cut after 0 of 1 rows: ask for fewer columns, or a lower limit)"


def test_pairs() -> None:
    assert pairs({"a\n": 1, "b": 2, "c": 3}, 2) == ["  a?: 1", "  b: 2", "  (and 1 more)"]


def test_long_text_is_cut_at_a_line() -> None:
    told = bounded("line\n" * 10_000, "ask for less")
    assert len(told) <= MAX_CHARS
    assert told.endswith("line\n(cut: ask for less)")
    assert len(bounded("x" * 50_000, "ask for less")) <= MAX_CHARS
    assert bounded("short", "") == "short"
