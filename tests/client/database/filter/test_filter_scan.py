"""A value is cut out of JSON text as a parser would give it; a filter finds the same runs as by records."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.written_runs import MakeRun

from rla_client import database
from rla_client.contract.errors import UnknownNameError
from rla_client.database.filter.filter_language import MISSING, Where
from rla_client.database.filter.json_values import value_in
from rla_client.database.records.record import to_json
from rla_client.database.records.row_view import RowView
from rla_client.run.parameters.hyper_params import HyperParams, wrap

NAMES = st.sampled_from(["lr", "a", "a.b", "a.b.a", 'q"uote', "x,", "ä", "", "\\", '{"lr":', ',"lr":', "1"])
LEAVES = st.one_of(
    NAMES,
    st.floats(),
    st.integers(),
    st.booleans(),
    st.none(),
    st.lists(NAMES, max_size=2),
    st.text(max_size=5),
)
VALUES = st.dictionaries(NAMES, st.one_of(LEAVES, st.dictionaries(NAMES, LEAVES, max_size=2)), max_size=5)


def alike(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


@given(values=VALUES, name=NAMES)
def test_a_value_is_that_of_a_parser(values: dict[str, Any], name: str) -> None:
    whole: HyperParams = wrap(values)
    try:
        expected = whole.dotted(name)
    except KeyError:
        expected = MISSING
    assert alike(value_in(to_json(values), name), expected)
    assert alike(value_in(to_json(values), name, nested=False), values.get(name, MISSING))


def test_nothing_in_nothing() -> None:
    assert value_in(None, "a") is MISSING
    assert value_in("{}", "a") is MISSING
    found = value_in('{"a":NaN}', "a")
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    "where",
    [
        "lr == 0.1 and seed >= 3",
        "state == 'finished' and `return` > 1",
        "nested.deep == 7 or deep == 8",
        "not lr is None",
        "'x' in tags or took > 5",
        "state in ['running', 'unknown', 'killed']",
        "lr == '0.1'",
        "table == 'task' and run > '2026'",
    ],
)
def test_the_same_runs_as_by_records(root: Path, make_run: MakeRun, where: str) -> None:
    for number, state in enumerate(("finished", "running", "killed", None, "finished")):
        make_run(number=number, state=state, rows=number)
    make_run(number=10, params={"nested": {"deep": 7}, "lr": "0.1"})
    make_run(number=11, params={"nested": {"deep": 8}}, state="running", updated=1.0)
    db = database.open(root)
    test = Where(where)
    test.full = {"deep": "nested.deep"}
    now = time.time()
    expected = [record for record in db.records() if test(RowView(record, now))]
    assert db.records(where=where) == expected


def test_a_name_that_no_run_has_is_told(root: Path, make_run: MakeRun) -> None:
    make_run()
    with pytest.raises(UnknownNameError, match="seed"):
        database.open(root).records(where="sede == 3")


@pytest.mark.parametrize("where", ["sede != 3", "not sede", "seed == 0 or sede == 3", "sede not in [3]"])
def test_a_mistyped_name_does_not_pass_every_run(root: Path, make_run: MakeRun, where: str) -> None:
    make_run(number=0)
    db = database.open(root)
    with pytest.raises(UnknownNameError, match="seed"):
        db.records(where=where)
    assert len(db.records(where="sede is None")) == len(db.records(where="sede == None or sede > 3")) == 1
