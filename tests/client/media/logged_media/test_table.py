"""Tables: what they are made of, and the file that they become."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.image import Image
from rla_client.media.logged_media.table import Table

ROWS = [[1, "a"], [2, "b"]]


def read(table: Table) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table.csv().decode("utf-8"), newline="")))


@pytest.mark.parametrize(
    "given",
    [
        {"columns": ["n", "name"], "data": ROWS},
        {"data": [{"n": 1, "name": "a"}, {"n": 2, "name": "b"}]},
        {"data": {"n": [1, 2], "name": ["a", "b"]}},
        {"data": {"n": np.array([1, 2]), "name": ("a", "b")}},
    ],
    ids=["rows", "dicts", "columns", "arrays"],
)
def test_the_forms_of_a_table(given: dict[str, Any]) -> None:
    assert read(Table(**given)) == [["n", "name"], ["1", "a"], ["2", "b"]]


def test_a_dataframe_and_a_choice_of_its_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame({"n": [1, 2], "name": ["a", None]})
    assert read(Table(data=frame)) == [["n", "name"], ["1", "a"], ["2", ""]]
    assert read(Table(["name", "other"], frame)) == [["name", "other"], ["a", ""], ["", ""]]


def test_dicts_with_other_keys_and_rows_that_are_added() -> None:
    table = Table(data=[{"a": 1}, {"b": 2}])
    table.add_data(3, 4)
    assert read(table) == [["a", "b"], ["1", ""], ["", "2"], ["3", "4"]]
    with pytest.raises(ArgumentError, match="2 columns, got 1"):
        table.add_data(3)
    with pytest.raises(ArgumentError, match="2 columns, got 3"):
        Table(["a", "b"], [[1, 2, 3]])
    with pytest.raises(ArgumentError, match="of one length"):
        Table(data={"a": [1], "b": [1, 2]})


def test_cells_of_every_kind_come_back() -> None:
    """Never as a repr: lists and dicts are JSON, numbers of numpy numbers, odd text text."""
    messages = [{"role": "user", "content": 'say "hi",\nplease'}]
    cells = [
        messages, (1, [2, None]), np.float32(0.5), np.arange(3), True, None, float("nan"), 10**30, "a\rb\n",
        "\0", "half \ud83d", {"x": np.int64(1)}, 'quote " and, comma',
    ]  # fmt: skip
    names = [str(number) for number in range(len(cells))]
    header, row = read(Table(names, [cells]))
    assert header == names
    assert json.loads(row[0]) == messages
    assert [json.loads(row[1]), row[2], json.loads(row[3]), row[4:6]] == [
        [1, [2, None]],
        "0.5",
        [0, 1, 2],
        ["True", ""],
    ]
    assert row[6:10] == ["nan", str(10**30), "a\rb\n", "\\x00"]
    assert row[10] == "half \\ud83d"
    assert json.loads(row[11]) == {"x": 1}
    assert row[12] == 'quote " and, comma'


def test_names_that_are_no_text_and_keys_that_json_has_no_form_for() -> None:
    assert read(Table(data=[{1: "x", 2: "y"}])) == [["1", "2"], ["x", "y"]]
    assert read(Table([1, 2], {1: ["x"], 2: ["y"]})) == [["1", "2"], ["x", "y"]]
    (cell,) = read(Table(["a"], [[{("s", 1): 0.5}]]))[1]
    assert cell == "{('s', 1): 0.5}"


def test_frames_of_other_libraries_and_a_named_index() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame({"env": ["a", "a", "b"], "r": [1.0, 3.0, 5.0]}).groupby("env").mean()
    assert read(Table(data=frame)) == [["env", "r"], ["a", "2.0"], ["b", "5.0"]]

    class Polars:
        """The part of a polars frame that is asked."""

        columns = ("a", "b")

        def rows(self) -> list[tuple[int, str]]:
            return [(1, "x")]

        def to_numpy(self) -> None:
            raise AssertionError("it has no types of its own there")

    assert read(Table(data=Polars())) == [["a", "b"], ["1", "x"]]


def test_an_image_is_one_file_however_often_its_table_is_packed(tmp_path: Path) -> None:
    where = {"cover": True, "add_timestamp": False, "results_dir": str(tmp_path)}
    Table(["n", "i"], [[10**30, Image(np.zeros((4, 4), np.uint8))]]).save("t", where)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t-1.png", "t.csv"]


def test_an_image_in_a_cell_is_a_file_of_its_own(tmp_path: Path) -> None:
    where = {"cover": True, "add_timestamp": True, "results_dir": str(tmp_path)}
    Table(["i"], [[Image(np.zeros((4, 4), np.uint8))], [Image(np.ones((4, 4), np.uint8))]]).save("t", where)
    (table,) = tmp_path.glob("*-t.csv")
    names = table.read_text().split()[1:]
    assert len(set(names)) == 2
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
