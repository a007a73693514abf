"""Tables that are logged again with more rows."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorboardX")

from rla_client.integrations.wandb.growing_tables import GrowingTables
from rla_client.integrations.wandb.values import Table

STEPS = count()


def kept(
    tables: GrowingTables,
    rows: list[list[Any]],
    name: str = "t",
    columns: str = "ab",
    step: float | None = None,
) -> Any:
    step = next(STEPS) if step is None else step
    found = tables.new_rows(name, Table(columns=list(columns), data=rows), step)
    return None if found is None else found.data


def test_only_new_rows_are_kept_of_a_table_that_grows() -> None:
    tables = GrowingTables()
    first, second, third = [np.float32(1), "x"], [2.5, ["nested", {"a": 1}]], [float("nan"), None]
    assert kept(tables, [first, third]) == [first, third]
    assert kept(tables, [first, third]) == [first, third], "another table, which happens to be equal"
    assert kept(tables, [first, third, second]) == [second]
    assert kept(tables, [first, third, second, first, first]) == [first, first]
    assert kept(tables, [first], name="other") == [first]


def test_another_table_is_kept_as_a_whole() -> None:
    tables = GrowingTables()
    assert kept(tables, [[1, 2], [3, 4]]) == [[1, 2], [3, 4]]
    assert kept(tables, [[1, 2]]) == [[1, 2]]  # shorter
    assert kept(tables, [[1, 3], [3, 4]]) == [[1, 3], [3, 4]]
    assert kept(tables, [[1, 3], [3, 4]], columns="ac") == [[1, 3], [3, 4]]
    assert kept(tables, []) == []
    assert kept(tables, [[1, 2]]) == [[1, 2]]


def test_a_row_that_was_changed_in_its_place_is_seen() -> None:
    tables, table = GrowingTables(), Table(columns=["a"], data=[[1], [2]])
    assert tables.new_rows("t", table, next(STEPS)) is table
    assert tables.new_rows("t", table, next(STEPS)) is None
    table.add_data(3)
    found = tables.new_rows("t", table, next(STEPS))
    assert found is not None
    assert found.data == [[3]]
    table.data[0][0] = 9
    assert tables.new_rows("t", table, next(STEPS)) is table


def test_what_cannot_be_compared_is_kept_as_a_whole() -> None:
    tables, array = GrowingTables(), np.zeros(3)
    for _ in range(2):
        assert len(kept(tables, [[1, array]])) == 1
        assert len(kept(tables, [[1, [array]]])) == 1


def test_equal_rows_are_kept_once_a_step() -> None:
    tables = GrowingTables()
    assert len(kept(tables, [["x", float("nan")]], step=9)) == 1
    assert kept(tables, [["x", float("nan")]], step=9) is None, "TRL logs its last table again at the end"
    assert len(kept(tables, [["x", float("nan")]], step=10)) == 1
    assert len(kept(tables, [["y", float("nan")]], step=10)) == 1
