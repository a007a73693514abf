"""Groups by the settings that differ, and which of them average runs of unequal length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rla_client.database.compare.group_table import settings, tabulate_groups
from rla_client.database.database import Database

MakeRun = Callable[..., str]


def make_grid(make_run: MakeRun, *, rows: Callable[[int], int] = lambda _: 10) -> None:
    for number in range(6):
        lr = 0.1 if number < 3 else 0.01
        params = {"lr": lr, "env.seed": number, "seed": number, "same": 1}
        make_run(number=number, info=f"&lr={lr}&seed={number}", params=params, rows=rows(number))


def test_settings_are_what_differs_but_for_seeds(root: Path, make_run: MakeRun) -> None:
    make_grid(make_run)
    records = Database(root).records()
    assert settings(records) == ["lr"]
    assert settings(records[:1]) == []
    make_run(number=7, table="other", params={"lr": 0.1})
    assert settings(Database(root).records()) == ["table", "lr", "same"]


def test_names_are_no_settings_unless_nothing_else_differs(root: Path, make_run: MakeRun) -> None:
    for number in range(4):
        lr, seed = 0.1 * (number % 2), number // 2
        make_run(number=number, params={"log_dir": f"runs/a__{number}", "lr": lr, "seed": seed})
    records = Database(root).records()
    assert settings(records) == ["lr"]
    assert settings(records[:1] + records[2:3]) == []  # two seeds of one setting
    for number in range(2):
        make_run(number=number, table="other", params={"env": f"env{number}"})
    assert settings(Database(root).records("other")) == ["env"]


def test_a_row_per_setting_and_its_mean(root: Path, make_run: MakeRun) -> None:
    make_grid(make_run)
    found = tabulate_groups(Database(root).records(), ["lr"], [], 0.0)
    assert found.metrics == ["return"]
    assert [(same[0].texts, same[0].numbers) for same in found.rows] == [
        (["0.01"], [4.5] * 3),
        (["0.1"], [4.5] * 3),
    ]
    assert found.of_unequal_length() == []


def test_runs_of_unequal_length_are_named(root: Path, make_run: MakeRun) -> None:
    make_grid(make_run, rows=lambda number: 20 if number == 4 else 10)
    found = tabulate_groups(Database(root).records(), ["lr"], ["return"], 0.0)
    assert found.of_unequal_length() == ["lr=0.01"]
