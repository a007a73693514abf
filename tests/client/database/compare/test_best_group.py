"""Whether seeds tell the best group from the next."""

from __future__ import annotations

import random

import pytest

from rla_client.database.compare.best_group import TooFewSeeds, less_is_better, too_few_seeds
from rla_client.database.compare.groups import Group, group_name


def group(value: object, numbers: list[float], lengths: list[float | None] | None = None) -> Group:
    return Group((value,), numbers=numbers, lengths=lengths or [1000.0] * len(numbers))


def found(groups: list[Group], *, minimize: bool = False) -> TooFewSeeds | None:
    return too_few_seeds(groups, ["lr"], minimize=minimize)


OVERLAPPING = [group(0.1, [0.0, 2.0, 4.0, 6.0]), group(0.2, [2.0, 4.0, 6.0, 8.0]), group(0.3, [-9.0, -8.0])]


def test_groups_that_overlap_need_more_seeds() -> None:
    few = found(OVERLAPPING)
    assert few is not None
    assert (few.best, few.next) == (1, 0)
    assert [few.low, few.high] == pytest.approx([-2.4678, 6.4678], abs=1e-3)
    names = (group_name(["lr"], OVERLAPPING[place]) for place in (few.best, few.next))
    assert few.sentence(*names) == (
        "too few seeds to tell lr=0.2 from lr=0.1: the 95 % interval of the difference of their means, "
        "-2.5 to 6.5, includes 0"
    )


def test_groups_of_unequal_spread() -> None:
    """As `scipy.stats.ttest_ind(…, equal_var=False).confidence_interval()`, with whole degrees of freedom."""
    few = found([group(1, [1.0, 2.0, 3.0, 4.0, 5.0]), group(2, [-9.0, 1.0, 8.0])])
    assert few is not None
    assert (few.best, few.next) == (0, 1)
    error = (0.5 + 219 / 9) ** 0.5  # of 2.07 degrees of freedom
    assert [few.low, few.high] == pytest.approx([3 - 4.303 * error, 3 + 4.303 * error])


def test_groups_far_apart_need_no_more() -> None:
    spread = [0.0, 1.0, 0.5, 0.3]
    assert found([group(place, [mean + one for one in spread]) for place, mean in ((1, 0), (2, 9))]) is None
    assert found([group(1, [5.0, 5.0]), group(2, [6.0, 6.0])]) is None


def test_smallest_is_best_where_asked() -> None:
    few = found(OVERLAPPING[:2], minimize=True)
    assert few is not None
    assert (few.best, few.next) == (0, 1)
    assert [few.low, few.high] == pytest.approx([-6.4678, 2.4678], abs=1e-3)


@pytest.mark.parametrize("runs", [2, 3, 5, 30])
def test_equal_groups_are_told_apart_one_time_in_twenty(runs: int) -> None:
    numbers = random.Random(runs)
    apart = sum(
        found([group(place, [numbers.gauss(0, 1) for _ in range(runs)]) for place in range(2)]) is None
        for _ in range(1000)
    )
    assert apart < 80


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_metrics_that_diverged(scale: float) -> None:
    groups = [group(1, [0.0, 2.0 * scale, 4.0 * scale]), group(2, [scale, 3.0 * scale, 5.0 * scale])]
    assert found(groups) is not None


def test_nothing_is_said_of_a_tie() -> None:
    assert found([group(place, [500.0] * 5) for place in range(2)]) is None, "the most that a task gives"
    assert found([group(1, [0.1, 0.2, 0.6]), group(2, [0.6, 0.1, 0.2])]) is None


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([1000.0, 1000.0, 400.0, 1000.0], False), ([1000.0, 987.0, 993.0, 1000.0], True), ([None] * 4, True)],
)
def test_nothing_is_said_of_runs_of_unequal_length(lengths: list[float | None], *, expected: bool) -> None:
    few = found([group(0.1, [0.0, 2.0, 4.0, 6.0], lengths), group(0.2, [2.0, 4.0, 6.0, 8.0])])
    assert (few is not None) is expected


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [group(1, [1.0, 2.0])],
        [group(1, [1.0]), group(2, [2.0])],
        [group(1, [1.0, 2.0]), group(2, [2.0])],
        [group(1, [1.0, 1.5]), group(2, [0.0, 0.5]), group(3, [9.0])],
        [group(1, [1.0, float("nan")]), group(2, [2.0, float("inf")])],
    ],
    ids=["none", "one", "single runs", "one of two", "best is single", "not finite"],
)
def test_nothing_is_said_without_repeats(groups: list[Group]) -> None:
    assert found(groups) is None


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_group_of_which_a_run_diverged_is_left_out(broken: float) -> None:
    few = found([group(0, [9.0, 9.5, broken]), group(1, [2.0, 2.5, 3.0]), group(2, [2.0, 2.5, 2.75])])
    assert few is not None
    assert (few.best, few.next) == (1, 2)


@pytest.mark.parametrize("by", [["lr", "seed"], ["env.seed"], ["state"], ["table", "host"]])
def test_nothing_is_said_of_what_nobody_chooses(by: list[str]) -> None:
    assert too_few_seeds(OVERLAPPING, by, minimize=False) is None
    assert too_few_seeds(OVERLAPPING, ["state", "lr"], minimize=False) is not None


def test_names_from_others_stay_on_their_line() -> None:
    assert group_name(["lr", "e\nv"], Group((0.1, "a\n\x1b[2Jb"))) == "lr=0.1, e?v=a??[2Jb"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("loss/policy", True),
        ("eval/loss", True),
        ("mse_error", True),
        ("perf/return", False),
        ("lossless", False),
    ],
)
def test_direction_by_name(metric: str, *, expected: bool) -> None:
    assert less_is_better(metric) is expected
