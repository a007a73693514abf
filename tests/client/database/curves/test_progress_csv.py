from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.text.csv_lines import rows_text
from rla_client.database.curves import progress_csv
from rla_client.database.curves.chart_points import sample_rows
from rla_client.database.curves.csv_tail import read_tail
from rla_client.database.curves.progress_csv import read_columns


def test_the_tail_gives_the_last_value_of_every_column_and_leaves_a_torn_row(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("a,b,c\n1,x,\n2.5,,True\n3,")
    tail = read_tail(path)
    assert tail.last == {"a": 2.5, "b": "x", "c": True}
    assert (tail.columns, tail.torn_bytes, tail.rows_seen) == (("a", "b", "c"), 2, True)


def test_a_column_that_was_written_long_ago_is_still_found(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("early,time-step\n" + "7,0\n" + "".join(f",{step}\n" for step in range(1, 30_000)))
    assert read_tail(path).last == {"early": 7, "time-step": 29_999}


@pytest.mark.parametrize("content", ["", "a,b", "a,b\n", "a,b\n1"])
def test_a_table_without_whole_rows_has_no_values(tmp_path: Path, content: str) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(content)
    assert read_tail(path).last == {}
    assert all(len(column) == 0 for column in read_columns(path, ["a"]).values())


def test_quoted_text_with_line_ends_and_commas_does_not_shift_columns(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["note", "y, z", "time-step"])
        for step in range(3000):
            writer.writerow([f'say "{step}",\nor not', step * 0.5, step])
    assert read_tail(path).last == {"note": 'say "2999",\nor not', "y, z": 1499.5, "time-step": 2999}
    assert read_columns(path, ["y, z"])["y, z"].tolist() == [step * 0.5 for step in range(3000)]


@pytest.mark.parametrize("name", ["loss\n", "a\nb", 'say "a\n"\nb', "\n"])
def test_a_name_with_line_ends_costs_no_other_column(tmp_path: Path, name: str) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(rows_text([["x", name, "y"], [1, 2, 3], [4, 5, 6]]))
    assert read_tail(path).last == {"x": 4, name: 5, "y": 6}
    assert {key: list(cells) for key, cells in read_columns(path, ["x", name, "y"]).items()} == {
        "x": [1, 4],
        name: [2, 5],
        "y": [3, 6],
    }


@pytest.mark.parametrize("name", ['a"', '"a', '"a"b"'])
def test_a_stray_quote_in_a_header_takes_no_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(f"x,{name},y\n1,2,3\n4,5,6\n")  # as the original writes names
    assert read_columns(path, ["x"])["x"].tolist() == [1, 4]


def test_rows_that_are_too_short_or_too_long_keep_the_cells_that_have_a_column(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("a,b\n1\n2,3\n4,5,6\n")
    found = read_columns(path, ["a", "b"])
    assert found["a"].tolist() == [1.0, 2.0, 4.0]
    assert math.isnan(found["b"][0])
    assert found["b"].tolist()[1:] == [3.0, 5.0]


@given(st.lists(st.floats(), min_size=1, max_size=30))
def test_floats_come_back_bit_for_bit(values: list[float]) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("x,y\n" + "".join(f"{value!r},1\n" for value in values))
        file.flush()
        found = read_columns(file.name, ["x"])["x"].tolist()
        sampled = sample_rows(file.name, ["x"]).columns["x"]
    assert [repr(value) for value in found] == [repr(value) for value in values]
    assert [repr(value) for value in sampled] == [repr(value) for value in values]


def test_words_and_text_among_numbers(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("x\nTrue\nFalse\nhello\n\n2\nnan\ninf\n")
    found = read_columns(path, ["x", "nope"])
    assert list(found) == ["x"]
    assert [repr(value) for value in found["x"].tolist()] == ["1.0", "0.0", "nan", "nan", "2.0", "nan", "inf"]


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_bytes(b"a\0b\n1\n")
    with pytest.raises(BrokenFileError, match=r"progress\.csv"):
        read_tail(path)


def test_the_mark_that_a_spreadsheet_puts_first_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text("return,time-step\n1.5,3\n", encoding="utf-8-sig")
    assert read_tail(tmp_path / "progress.csv").last == {"return": 1.5, "time-step": 3}
    assert read_columns(tmp_path / "progress.csv", ["return"])["return"].tolist() == [1.5]


def test_a_large_table_is_sampled_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("x,time-step\n" + "".join(f"{step}.5,{step}\n" for step in range(200_000)))
    sample = sample_rows(path, ["time-step"], points=100)
    assert (sample.rows, sample.whole) == (100, False)
    steps = [step for step in sample.columns["time-step"] if step is not None]
    assert len(steps) == 100
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] > 190_000


def test_the_programs_own_limit_of_cells_stays(tmp_path: Path) -> None:
    usual = csv.field_size_limit()
    path = tmp_path / "progress.csv"
    path.write_text(f"a,b\n1,{'x' * 2 * usual}\n")
    assert len(str(read_tail(path).last["b"])) == 2 * usual
    assert csv.field_size_limit() == usual


@pytest.mark.parametrize("last", [b'3,"quoted, text"\n', b"4,5,too many\n", b"6\n"])
def test_columns_do_not_depend_on_the_blocks_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    """At each length of a file: what is after the last whole line counts for nothing."""
    content = b"a,b\n1,\n-2.5,inf\n" + last
    path = tmp_path / "progress.csv"
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        rows = max(0, content[:size].count(b"\n") - 1)
        found = []
        for block in (1 << 20, 1, 2, 3, 7):
            monkeypatch.setattr(progress_csv, "BLOCK_BYTES", block)
            found.append({key: column.tolist() for key, column in read_columns(path, ["a"]).items()})
        assert all(one == found[0] for one in found)
        assert found[0] == ({"a": [1.0, -2.5, float(last[:1])][:rows]} if size > 3 else {})


@pytest.mark.parametrize("end", ["", "\n1\n"])
def test_a_row_that_is_longer_than_any_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(progress_csv, "MAX_ROW_BYTES", 3 << 20)
    path = tmp_path / "progress.csv"
    path.write_text("x\n" + "1\n" * 10 + "9" * (8 << 20) + end)
    with pytest.raises(BrokenFileError, match="a row of more than 3 MiB"):
        read_columns(path, ["x"])
