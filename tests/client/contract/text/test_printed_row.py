from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.text.printed_row import format_table
from rla_client.contract.text.terminal_text import broken, fitted, indented, text_width


def test_the_look() -> None:
    table = format_table({"time-step": 2048, "Loss": 0.123456, "a/b": True, "note": "text", "z": None})
    assert table == (
        "------------------------------------------------------------\n"
        "| a/b       | True     |\n"
        "| Loss      | 0.123    |\n"
        "| note      | text     |\n"
        "| time-step | 2048     |\n"
        "| z         | None     |\n"
        "------------------------------------------------------------\n"
    ).replace("-" * 60, "-" * (9 + 8 + 40))


def test_an_empty_row_is_no_table() -> None:
    assert format_table({}) == ""


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (23.2, "23.2    "), (1e-9, "1e-09   "), (float("nan"), "nan     "), (-float("inf"), "-inf    "),
        (1234567.0, "1.23e+06"), (12, "12"), (2**80, str(2**80)), ([1, 2], "[1, 2]"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("x" * 80, "x" * 80), ("x" * 81, "x" * 40 + "..."),
    ],
)  # fmt: skip
def test_cells(value: object, cell: str) -> None:
    assert format_table({"k": value}).splitlines()[1] == f"| k | {cell} |"


def test_keys_are_cut_but_never_merged() -> None:
    lines = format_table({"x" * 81: 1, "x" * 82: 2}).splitlines()
    assert lines[1] == f"| {'x' * 40}... | 1 |"
    assert lines[2] == f"| {'x' * 40}... | 2 |"


def test_the_border_is_straight_with_wide_characters() -> None:
    lines = format_table({"奖励": 1.0, "e\u0301tat": "失败", "x": "y"}).splitlines()
    assert lines[2] == "| x    | y        |"
    assert {text_width(line) for line in lines[1:-1]} == {text_width("| 奖励 | 失败     |")}


def test_columns_remembered_for_one_row_do_not_leak_into_the_next() -> None:
    first = format_table({"a": 1, "bb": 2})
    assert format_table({"bb": 2, "a": 1}) == first
    assert format_table({"a": 10000, "bb": 2}).splitlines()[1] == "| a  | 10000 |"


def test_a_row_of_5000_keys() -> None:
    lines = format_table({f"k{index:05}": index for index in range(5000)}).splitlines()
    assert lines[1] == "| k00000 | 0    |"
    assert len(lines) == 5002


@given(st.dictionaries(st.text(), st.none() | st.floats() | st.integers() | st.text() | st.lists(st.text())))
def test_any_row_gives_one_straight_line_a_key(row: dict[str, object]) -> None:
    lines = format_table(row).splitlines()
    assert len(lines) == (len(row) + 2 if row else 0)
    assert len({text_width(line) for line in lines[1:-1]}) <= 1
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines[1:-1])


def test_tables_of_the_original_come_out_the_same(legacy_source: Path) -> None:
    checked = 0
    for file in sorted(legacy_source.rglob("log.txt"))[:20]:
        lines = file.read_text().split("\n")
        edges = [index for index, line in enumerate(lines) if line.startswith("---")]
        for start, end in zip(edges[::2], edges[1::2], strict=False):
            cells = [line[2:-2].split(" | ") for line in lines[start + 1 : end]]
            row = {key.strip(): value.rstrip(" ") for key, value in cells}
            width = max(map(len, row.values()))
            padded = {key: value.ljust(8) if width < 8 else value for key, value in row.items()}
            original = "\n".join(lines[start : end + 1]) + "\n"
            assert original in {format_table(row), format_table(padded)}
            checked += 1
    assert checked > 1000


def test_lines_are_fitted_behind_their_own_indent() -> None:
    assert (
        fitted("short\n  - a fault of three words\nnext", 14) == "short\n  - a fault of\n  three words\nnext"
    )
    assert fitted("  two  blanks", 80) == "  two  blanks"
    assert indented("a b", 3, "- ", "  ") == "- a\n  b"
    assert broken("実験 実験", 5) == ["実験", "実験"]
