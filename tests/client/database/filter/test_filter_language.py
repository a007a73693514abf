from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.errors import ArgumentError, UnknownNameError
from rla_client.database import open as open_database
from rla_client.database.filter.filter_language import Where
from rla_client.database.filter.since import parse_since

ROW = {
    "lr": 0.001,
    "env": "Hopper-v4",
    "old": "0.5",
    "tags": ["a", "b"],
    "perf/mse": 0.05,
    "a.b": 3,
    "flag": True,
    "nothing": None,
    "diverged": float("nan"),
    "return": 7.0,
    "agent.lambda": 0.95,
    "n-step-return": 2,
    "eval-x/mean.return": 5,
    "began": datetime(2026, 11, 21, 12).timestamp(),  # noqa: DTZ001 - local, as dates in filters are
}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("lr == 0.001 and env == 'Hopper-v4'", True),
        ("lr > 0.001 or not env == 'Ant-v4'", True),
        ("old == 0.5", True),
        ("0.1 < old <= 0.5", True),
        ("`perf/mse` < 0.1", True),
        ("perf/mse < 0.1 and perf/mse == `perf/mse`", True),
        ("return > 3 and agent.lambda == 0.95 and n-step-return in [2] and eval-x/mean.return == 5", True),
        ("not return < 3 and not(return == 3) and None is class", True),
        ("env == 'perf/mse' or 'a`b' == \"c/d\" or 'it\\'s return' == env", False),
        ("'Hopper-v4' == env", True),
        ("a.b == 3", True),
        ("'a' in tags and 'c' not in tags", True),
        ("'Hop' in env", True),
        ("env in ['Hopper-v4', 'x']", True),
        ("lr in (1, 0.001)", True),
        ("missing > 3", False),
        ("missing is None", True),
        ("missing == 3", False),
        ("env > 3", False),
        ("lr == -0.001", False),
        ("flag == True", True),
        ("flag", True),
        ("missing != 3", False),
        ("missing not in [3]", False),
        ("missing != None", False),
        ("not missing", True),
        ("nothing != 3 and nothing not in [3] and nothing is None and nothing == None", True),
        ("nothing == 3 or nothing < 3 or nothing > 3 or 'a' in nothing", False),
        ("'a' not in nothing", True),
        ("diverged in [nan] and diverged == -nan and diverged == 'nan'", True),
        ("diverged not in [nan] or lr in [nan]", False),
        ("began < '2026/11/21/23-59-59' and began > '2026/11/20/23-59-59-123456'", True),
        ("lr != None and 'c' not in tags", True),
        ("diverged == nan and diverged != 3 and diverged != diverged", True),
        ("lr == nan or missing == nan or missing == inf or diverged < nan", False),
        ("lr != nan and lr < inf and lr > -inf", True),
        ("began > '2026/11/20' and began < '2026-11-22T09:30'", True),
        ("began > 'tomorrow'", False),
    ],
)
def test_filters(text: str, answer: bool) -> None:
    assert Where(text)(ROW) is answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lr = 3",
        "__import__('os')",
        "lr.__class__()",
        "[x for x in y]",
        "lr if 1 else 2",
        "lambda: 1",
        "lr[0]",
        "lr / 2 > 1",
        "lr > 1/2",
        "lr == 1 && flag",
        "f'{lr}'",
        "(",
        "a" * 20_000,
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentError, match="example"):
        Where(text)


@given(st.text(max_size=40))
def test_no_text_does_anything_but_filter_or_be_refused(text: str) -> None:
    try:
        test = Where(text)
    except ArgumentError:
        return
    test(ROW)


def test_the_names_of_columns_are_understood(root: Path, make_run: Callable[..., str]) -> None:
    make_run(number=1, rows=3)
    make_run(number=2, rows=9, params={"step": 77, "batch-size": 4})
    database = open_database(root)

    def found(where: str) -> list[str]:
        return [record.index[17:19] for record in database.records(where=where)]

    assert found("took > 5") == found("duration > 5") == found("duration_s > 5") == ["01", "02"]
    assert found("time-step == 2") == found("`time-step` == 2") == found("step == 2") == ["01"]
    assert found("step == 77") == ["02"]  # a hyper-parameter of that name comes first
    assert found("batch-size == 4 and host == 'box'") == ["02"]
    with pytest.raises(ArgumentError):
        database.records(where="step - 1 == 2")


def test_text_without_quotes(root: Path, make_run: Callable[..., str]) -> None:
    make_run(number=1)
    with pytest.raises(
        UnknownNameError, match="no run has 'finished'; if it is text, put it in quotes: \"finished\""
    ):
        open_database(root).records(where="state == finished")
    with pytest.raises(UnknownNameError) as caught:
        open_database(root).records(where="finished == 3")
    assert "quotes" not in str(caught.value)
    with pytest.raises(ArgumentError, match="`and` and `or`"):
        Where("lr == 1 || lr == 2")


def test_run_is_the_date_or_the_whole_index(root: Path, make_run: Callable[..., str]) -> None:
    first, second = make_run(number=1), make_run(number=2)
    date = second[:26]
    database = open_database(root)

    def found(where: str) -> list[str]:
        return [record.index for record in database.records(where=where)]

    assert found(f"run == '{first}'") == found(f"'{first}' == run") == found(f"run in ['{first}']") == [first]
    assert found(f"run == '{date}'") == found(f"run != '{first}'") == [second]
    assert found(f"run in ('{first}', '{date}')") == [first, second]
    assert found(f"run not in ['{first}', '{date}']") == []
    assert found(f"not run == '{first}' and state == 'finished'") == [second]


@pytest.mark.parametrize("since", ["²d", "²", "1²h", "d", ".d", "0001-01-01", "99999-01-01"])
def test_what_is_neither_date_nor_age(since: str) -> None:
    with pytest.raises(ArgumentError, match="is not a date"):
        parse_since(since, 0.0)
