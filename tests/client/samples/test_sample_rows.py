from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from typing import Any

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.samples import sample_rows
from rla_client.samples.sample_rows import rows_of


def test_lists_of_dicts_and_dicts_of_columns_are_rows() -> None:
    wanted = [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    assert rows_of(wanted) == wanted
    assert rows_of(iter(wanted)) == wanted
    assert rows_of({"a": [1, 2], "b": "x"}) == wanted
    assert rows_of({"a": 1}) == [{"a": 1}]
    assert rows_of({}) == []
    assert rows_of({"a": []}) == []


def test_arrays_and_frames_are_columns() -> None:
    numpy = pytest.importorskip("numpy")
    assert rows_of({"a": numpy.arange(2), "b": numpy.float32(0.5)}) == [
        {"a": 0, "b": 0.5},
        {"a": 1, "b": 0.5},
    ]
    pandas = pytest.importorskip("pandas")
    assert rows_of(pandas.DataFrame({"a": [1, 2]})) == [{"a": 1}, {"a": 2}]
    lacking = {"a": ["x", None], "b": [1.5, None], "c": pandas.array([1, None], dtype="Int64")}
    for form in (pandas.DataFrame(lacking), {name: pandas.Series(one) for name, one in lacking.items()}):
        first, second = rows_of(form)
        assert first == {"a": "x", "b": 1.5, "c": 1}
        assert (second["a"], str(second["b"]), second["c"]) == (None, "nan", None)
    with pytest.raises(ArgumentError, match="several columns 'a'"):
        rows_of(pandas.DataFrame([[1, 2]], columns=["a", "a"]))
    polars = pytest.importorskip("polars")
    for table in (polars.DataFrame({"a": ["x", None]}), {"a": polars.Series(["x", None])}):
        assert rows_of(table) == [{"a": "x"}, {"a": None}]


@pytest.mark.parametrize(
    "column", [deque([1, 2]), range(1, 3), (n for n in (1, 2)), {"x": 1, "y": 2}.values()]
)
def test_whatever_has_a_value_a_row_is_a_column(column: Any) -> None:
    assert rows_of({"a": column, "b": ["x", "y"]}) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("wrong", [5, None, "text", b"x", [5], {"a": [1], "b": [1, 2]}])
def test_anything_else_is_told(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"log_samples takes|different lengths"):
        rows_of(wrong)


@pytest.mark.parametrize(
    "endless",
    [
        itertools.count(),
        itertools.repeat({}),
        {"a": ["x"], "b": itertools.count()},
        {"a": itertools.count()},
        {"a": "x", "b": range(10**20)},
    ],
)
def test_an_iterator_without_end_is_told(endless: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_rows, "MAX_ROWS", 100)
    with pytest.raises(ArgumentError, match=r"log_samples takes|different lengths"):
        rows_of(endless)


def test_an_iterator_beside_columns_of_another_length_is_left_as_it_is() -> None:
    numbers = iter(range(9))
    with pytest.raises(ArgumentError, match="different lengths: a 1, b 2"):
        rows_of({"a": [1], "b": [1, 2], "c": numbers})
    with pytest.raises(ArgumentError, match="beside a list, which says its length; got c"):
        rows_of({"c": numbers, "d": "x"})
    assert next(numbers) == 0


def test_a_mapping_without_an_end_is_refused() -> None:
    class Endless(dict[str, int]):
        def items(self) -> Any:
            return ((str(number), [1]) for number in itertools.count())

    for given in (Endless(), [{"a": 1}, Endless()]):
        with pytest.raises(ArgumentError, match="this Endless has more than 10000 columns"):
            rows_of(given)
    assert rows_of([OrderedDict(a=1)]) == [{"a": 1}]
