from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

from rla_client.stream.column_cells import column_cells

pandas = pytest.importorskip("pandas", reason="needs pandas")
DAY = pandas.Timestamp("2026-11-21")


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (pandas.Series([1, 2], dtype="int8"), [1, 2]),
        (pandas.Series([0.5, None], dtype="float32"), [0.5, None]),
        (pandas.Series([True, False]), [True, False]),
        (pandas.Series([2**62, None], dtype="Int64"), [2**62, None]),
        (pandas.Series(["x", None]), ["x", None]),
        (pandas.Series(["x", float("nan")], dtype=object), ["x", None]),
        (pandas.Series(["x", None], dtype="string"), ["x", None]),
        (pandas.Series(["x", None], dtype="category"), ["x", None]),
        (pandas.Series([DAY, None]), [DAY, None]),
        (pandas.Series([dt.timedelta(1), None]), [pandas.Timedelta(days=1), None]),
        (pandas.Series([[1, None], {"a": 1}]), [[1, None], {"a": 1}]),
        (np.array([1, 2], dtype=np.uint8), [1, 2]),
    ],
)
def test_cells_are_values_of_python(column: Any, cells: list[Any]) -> None:
    found = column_cells(column, keeps_nan=False)
    assert found == cells
    assert list(map(type, found)) == list(map(type, cells))


def test_floats_that_are_no_number_stay_where_they_are_asked_for() -> None:
    kept = column_cells(pandas.Series([0.5, None]), keeps_nan=True)
    assert (kept[0], str(kept[1])) == (0.5, "nan")
    assert column_cells(pandas.Series([1, None], dtype="Int64"), keeps_nan=True) == [1, None]
    polars = pytest.importorskip("polars", reason="needs polars")
    assert column_cells(polars.Series([1, None]), keeps_nan=False) == [1, None]
