"""What seeds say about a choice: whether there are enough, and whom they flatter."""

from __future__ import annotations

import random

import pytest

from rla_client.database.compare.best_group import COUNTS, Choice, judge, less_is_better, told
from rla_client.database.compare.groups import Group, group_name


def group(value: object, numbers: list[float], first_seed: int = 0) -> Group:
    return Group((value,), numbers=numbers, seeds=[str(first_seed + place) for place in range(len(numbers))])


def drawn(means: list[float], runs: int) -> list[Group]:
    """Runs that spread by 1 around the mean of their group."""
    numbers = random.Random(3)
    return [group(place, [numbers.gauss(mean, 1) for _ in range(runs)]) for place, mean in enumerate(means)]


def judged(groups: list[Group], *, minimize: bool = False) -> Choice:
    found = judge(groups, ["lr"], minimize=minimize)
    assert found is not None
    return found


def test_groups_far_apart_need_no_more_runs() -> None:
    spread = [0.0, 1.0, 0.5, 0.3]
    found = judged([group(place, [mean + one for one in spread]) for place, mean in ((1, 0), (2, 9), (3, 4))])
    assert (found.best, found.runs, found.kept, found.enough) == (1, 4, 1.0, 4)
    assert found.flatters == 0, "not the luck of the draws"
    (only,) = told(found, "lr=2")
    assert only.endswith(": 4 runs a group are enough to choose it")


def test_smallest_is_best_where_asked() -> None:
    groups = [group(1, [0.0, 1.0, 0.5]), group(2, [9.0, 10.0, 9.5])]
    assert judged(groups, minimize=True).best == 0
    assert judged(groups).best == 1


def test_groups_that_overlap_need_more_runs() -> None:
    found = judged([group(1, [0.0, 2.0, 4.0, 6.0]), group(2, [2.0, 4.0, 6.0, 8.0])])
    assert 0.5 < found.kept < 0.95
    assert found.enough in COUNTS
    assert found.enough > found.runs == 4


def test_metrics_that_diverged_are_judged() -> None:
    diverged = [1e200, -1e200, 3e200, 1.0]
    found = judged([group(place, [scale * one for one in diverged]) for place, scale in ((1, 1.0), (2, 2.0))])
    assert 0.5 < found.kept < 0.95


def test_equal_groups_cannot_be_told_apart() -> None:
    found = judged([group(1, [0.0, 1.0, 2.0]), group(2, [0.0, 1.0, 2.0])])
    assert found.kept < 0.9
    assert found.enough is None


def test_winner_of_equal_groups_is_flattered() -> None:
    """Ten groups of the same mean 0: what the best of them says is luck, and most of it is told."""
    luck, flattery = 0.0, 0.0
    for seed in range(20):
        numbers = random.Random(seed)
        groups = [group(place, [numbers.gauss(0, 1) for _ in range(5)]) for place in range(10)]
        luck += max(sum(one.numbers) / 5 for one in groups)
        flattery += judged(groups).flatters
    assert 0.5 * luck < flattery < luck


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
    assert judge(groups, ["lr"], minimize=False) is None


def test_equal_groups_are_not_told_apart() -> None:
    """As where all seeds reach the most that a task gives."""
    choice = judge([group(place, [500.0] * 5) for place in range(2)], ["lr"], minimize=False)
    assert choice is not None
    assert 0.4 < choice.kept < 0.6
    assert (choice.enough, choice.flatters) == (None, 0.0)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_group_of_which_a_run_diverged_is_not_chosen(broken: float) -> None:
    groups = [group(1, [9.0, 9.5, broken]), group(2, [2.0, 2.5, 3.0]), group(3, [1.0, 1.5, 2.0])]
    choice = judge(groups, ["lr"], minimize=False)
    assert choice is not None
    assert choice.best == 1


@pytest.mark.parametrize("by", [["lr", "seed"], ["env.seed"], ["state"], ["table", "host"]])
def test_nothing_is_said_of_what_nobody_chooses(by: list[str]) -> None:
    groups = [group(1, [0.0, 1.0]), group(2, [9.0, 10.0])]
    assert judge(groups, by, minimize=False) is None
    assert judge(groups, ["state", "lr"], minimize=False) is not None


def test_answer_is_the_same_each_time() -> None:
    groups = drawn([0.0, 0.3, 0.6], 6)
    assert judge(groups, ["lr"], minimize=False) == judge(groups, ["lr"], minimize=False)


def test_many_runs_of_a_group() -> None:
    found = judged(drawn([0.0, 1.0], 3000))
    assert (found.best, found.runs, found.kept) == (1, 3000, 1.0)


def test_same_seeds_flatter() -> None:
    groups = [group(0.1, [0.0, 2.0, 4.0, 6.0]), group(0.2, [2.0, 4.0, 6.0, 8.0])]
    found = judged(groups)
    enough, honest = told(found, group_name(["lr"], groups[found.best]))
    assert enough.startswith("lr=0.2 stays first in ")
    assert enough.endswith(f": 4 runs a group are not enough to choose it, about {found.enough} would be")
    assert honest == (
        f"the best of several looks better than it is, lr=0.2 by {found.flatters:.2g} or more: "
        "run it with new seeds and report those"
    )


def test_one_seed_flatters_none() -> None:
    """What differs is chance of another kind, which new seeds do not mend."""
    groups = [group(0.1, [0.0, 2.0, 4.0, 6.0]), group(0.2, [2.0, 4.0, 6.0, 8.0])]
    for one in groups:
        one.seeds[:] = ["1"] * 4
    found = judged(groups)
    assert found.flatters == 0
    assert len(told(found, "lr=0.2")) == 1


@pytest.mark.parametrize("runs", [2, 3])
def test_two_or_three_runs_are_never_enough(runs: int) -> None:
    """Equal groups of two do not overlap one time in three, and all draws agree then."""
    found = judged([group(0.1, [2.9, 3.7, 3.1][:runs]), group(0.2, [37.6, 20.7, 25.0][:runs])])
    assert (found.kept, found.runs, found.enough) == (1.0, runs, 4)
    assert told(found, "lr=0.2")[0] == (
        f"lr=0.2 stays first in 100% of bootstrap draws, but {runs} runs a group are too few to say how they "
        "spread: make it 4 or more"
    )


def test_seeds_of_its_own_report() -> None:
    chosen = group(0.2, [7.0, 8.0, 9.0])
    chosen.numbers += [5.0, 6.0, 7.0]
    chosen.seeds += ["100", "101", None]
    found = judged([group(0.1, [0.0, 1.0, 2.0]), chosen])
    assert found.others == (5.0, 6.0)
    assert told(found, "lr=0.2")[1] == (
        "report lr=0.2 by the 2 runs on seeds that no other group has: 5.5 ± 6.4"
    )


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
