"""The runs that options choose: the newest n, those of a commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_client.cli.selection import Selection
from rla_client.contract.errors import ArgumentError, UnknownNameError
from rla_client.database.database import Database

MakeRun = Callable[..., str]
COMMITS = ("aaaa1111" + "0" * 32, "aaaa2222" + "0" * 32, "BBBB" + "0" * 36)


@pytest.fixture
def database(root: Path, make_run: MakeRun) -> Database:
    """Five runs; three of them know their commit."""
    for number in range(5):
        index = make_run(number=number, info=f"&seed={number}")
        if number < len(COMMITS):
            told = {"git": {"commit": COMMITS[number]}}
            (root / "log/task" / index / "environment.json").write_text(json.dumps(told, indent=1))
    return Database(root)


def seeds(database: Database, chosen: Selection, *, light: bool = False) -> list[str]:
    return [record.tracked["seed"] for record in chosen.records(database, light=light)]


def test_the_newest_n_are_those_of_the_runs_that_match(database: Database) -> None:
    assert seeds(database, Selection(limit=2)) == ["3", "4"]
    assert seeds(database, Selection(limit=99)) == ["0", "1", "2", "3", "4"]
    assert seeds(database, Selection(where="seed < 3", limit=2)) == ["1", "2"]
    assert seeds(database, Selection(fitting=("seed=0", "seed=1", "seed=4"), limit=2)) == ["1", "4"]


@pytest.mark.parametrize("light", [False, True])
def test_a_commit_is_named_by_its_first_digits(database: Database, light: bool) -> None:
    assert seeds(database, Selection(commit="aaaa1"), light=light) == ["0"]
    assert seeds(database, Selection(commit="bbbb"), light=light) == ["2"]


def test_a_commit_that_is_not_one_is_said(database: Database) -> None:
    with pytest.raises(ArgumentError, match="2 commits begin with aaaa: aaaa1111"):
        seeds(database, Selection(commit="aaaa"))
    with pytest.raises(UnknownNameError, match="none of these runs was started from commit cccc"):
        seeds(database, Selection(commit="cccc"))


def test_each_of_them_says_which_runs_are_meant() -> None:
    assert Selection(limit=1).given
    assert Selection(commit="aaaa").given
    assert not Selection().given
