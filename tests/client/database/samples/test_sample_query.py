from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from support.sampled import write_samples

from rla_client.contract.errors import ArgumentError, UnknownNameError
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.samples.sample_query import containing, matching, ordered, parse_steps
from rla_client.database.tree.chains import ChainLink

RUN = "2026/11/21/09-30-01-123456_10.0.0.5"


@pytest.fixture
def index(tmp_path: Path) -> SampleIndex:
    rows: list[dict[str, Any]] = [
        {"prompt": "a", "completion": "Sorry, no", "reward": -1.0, "finish": "stop"},
        {"prompt": "a", "completion": "x" * 500 + " END", "reward": math.nan, "finish": "length"},
        {"prompt": "b", "completion": [{"role": "assistant", "content": 'say "hi"\n'}]},
    ]
    write_samples(tmp_path, "t", RUN, [(step, rows) for step in (1, 2)])
    found = SampleIndex(tmp_path, "t", [ChainLink(RUN)])
    found.refresh()
    return found


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("reward < 0", [0, 3]),
        ("reward < 0 and step == 2", [3]),
        ("reward is None", [2, 5]),
        ("finish in ['stop', 'x']", [0, 3]),
        ("completion_chars > 400", [1, 4]),
        ("time-step > 1 and not finish == 'stop'", [4, 5]),
    ],
)
def test_a_filter_is_that_of_runs(index: SampleIndex, where: str, rows: list[int]) -> None:
    assert matching(index, where) == rows


def test_steps_groups_and_names_narrow_down(index: SampleIndex) -> None:
    group = index.columns["group"][0]
    assert matching(index, steps=(2, math.inf), group=group) == [3, 4]
    assert matching(index, name="eval") == []


def test_a_wrong_name_is_told_with_the_nearest(index: SampleIndex) -> None:
    with pytest.raises(UnknownNameError, match="reward"):
        matching(index, "rewrd > 1")
    with pytest.raises(UnknownNameError, match="reward"):
        ordered(index, [0], "rewrd")


def test_what_has_no_value_comes_last_both_ways(index: SampleIndex) -> None:
    assert ordered(index, range(3), "reward") == [0, 1, 2]
    assert ordered(index, range(6), "reward", descending=True)[:2] == [0, 3]
    assert ordered(index, range(3), "finish") == [1, 0, 2]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("sorry", [0, 3]),
        ("Sorry", [0, 3]),
        ("SORRY", []),
        ("end", [1, 4]),
        ('"hi"', [2, 5]),
        ("completion", []),
    ],
)
def test_a_text_is_found_wherever_it_stands(index: SampleIndex, text: str, rows: list[int]) -> None:
    assert list(containing(index, range(6), text)) == rows


def test_a_search_can_be_stopped(index: SampleIndex) -> None:
    assert list(containing(index, [0] * 600, "sorry", lambda looked: looked < 256)) == [0] * 256


def test_time_steps_are_one_or_a_range() -> None:
    assert parse_steps("100") == (100, 100)
    assert parse_steps("100:") == (100, math.inf)
    assert parse_steps(":200") == (-math.inf, 200)
    for wrong in ("", "x", "1:2:3", "nan"):
        with pytest.raises(ArgumentError, match="time-steps are"):
            parse_steps(wrong)
