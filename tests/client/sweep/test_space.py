"""Which parameters there are to try."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.sweep.space import MAX_DIMENSIONS, Choices, Dimension, Range, Space


def values(name: str, *choices: Any, **when: tuple[Any, ...]) -> Dimension:
    return Dimension(name, Choices(choices), when)


OPTIMIZER = values("optimizer", "adam", "sgd")
MOMENTUM = values("momentum", 0.9, 0.99, optimizer=("sgd",))
NESTEROV = values("nesterov", True, False, momentum=(0.99,))


def test_the_last_dimension_changes_first() -> None:
    space = Space.of([values("a", 1, 2), values("b", "x", "y")])
    found = [tuple(one.values()) for one in space.grid()]
    assert found == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_a_condition_on_a_condition() -> None:
    space = Space.of([NESTEROV, MOMENTUM, OPTIMIZER])
    assert space.names == ("optimizer", "momentum", "nesterov")
    assert space.always == {"optimizer"}
    assert list(space.grid()) == [
        {"optimizer": "adam"},
        {"optimizer": "sgd", "momentum": 0.9},
        {"optimizer": "sgd", "momentum": 0.99, "nesterov": True},
        {"optimizer": "sgd", "momentum": 0.99, "nesterov": False},
    ]


def test_no_dimension_is_one_trial() -> None:
    assert list(Space.of([]).grid()) == [{}]
    assert Space.of([]).draw(0, 1) == {}


@pytest.mark.parametrize(
    ("dimensions", "told"),
    [
        ([values("a", 1, b=(1,))], "a: its `when` names 'b', which is not another parameter"),
        ([values("a", 1, a=(1,))], "a: its `when` names 'a', which is not another parameter"),
        ([values("a", 1, b=(1,)), values("b", 1, a=(1,))], "the conditions of a, b need each other"),
        (
            [OPTIMIZER, values("a", 1, optimizer=("sdg",))],
            "requires optimizer = 'sdg', which is not one of its values",
        ),
        (
            [Dimension("x", Range(0, 1)), values("a", 1, x=(2,))],
            "requires x = 2, which is not one of its values",
        ),
        (
            [Dimension("x", Range(0, 1)), values("a", 1, x=(0.5,))],
            "requires x = 0.5, which a draw from a continuous range never hits",
        ),
        ([values(f"p{n}", 1) for n in range(MAX_DIMENSIONS + 1)], f"at most {MAX_DIMENSIONS}"),
    ],
)
def test_what_is_no_space(dimensions: list[Dimension], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Space.of(dimensions)


def test_the_largest_space_is_counted_through() -> None:
    space = Space.of([values(f"p{n}", 1) for n in range(MAX_DIMENSIONS)])
    assert len(next(space.grid())) == MAX_DIMENSIONS


def test_a_draw_depends_on_the_trial_and_the_name_alone() -> None:
    few = Space.of([Dimension("lr", Range(1e-5, 1e-2, log=True)), values("env", "a", "b", "c")])
    more = Space.of([Dimension("gamma", Range(0.9, 1)), *reversed(few.dimensions), values("n", 1, 2)])
    for trial in range(1, 50):
        drawn = more.draw(7, trial)
        assert few.draw(7, trial) == {name: drawn[name] for name in ("lr", "env")}
    draws = [few.draw(7, trial)["lr"] for trial in range(50)]
    assert len(set(draws)) == 50
    assert few.draw(8, 1) != few.draw(7, 1)


def test_draws_stay_what_they_were_when_this_release_was_made() -> None:
    space = Space.of([Dimension("lr", Range(1e-5, 1e-2, log=True)), Dimension("n", Range(1, 9, whole=True))])
    drawn = space.draw(0, 1)
    assert drawn["lr"] == pytest.approx(0.00012638856513763508)
    assert drawn["n"] == 4


@pytest.mark.parametrize("log", [False, True])
def test_both_bounds_of_whole_numbers_are_drawn(log: bool) -> None:
    drawn = {Range(1, 4, log, whole=True).draw(random.Random(n)) for n in range(200)}
    assert drawn == {1, 2, 3, 4}


def test_a_logarithm_is_drawn_evenly() -> None:
    draws = [Range(1e-6, 1, log=True).draw(random.Random(n)) for n in range(2000)]
    below = sum(isinstance(one, float) and one < 1e-3 for one in draws)
    assert 900 < below < 1100


@pytest.mark.parametrize(
    ("low", "high"), [(-1.7e308, 1.7e308), (0.1, math.nextafter(0.1, 1)), (5e-324, 1.7e308)]
)
def test_extreme_bounds(low: float, high: float) -> None:
    for log in {False, low > 0}:
        for number in range(200):
            found = Range(low, high, log).draw(random.Random(number))
            assert isinstance(found, float)
            assert low <= found <= high


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.tuples(NUMBERS, NUMBERS).filter(lambda pair: pair[0] < pair[1]), st.integers(0, 1000))
def test_each_number_lies_in_its_range(bounds: tuple[float, float], seed: int) -> None:
    low, high = bounds
    assert low <= Range(low, high).draw(random.Random(seed)) <= high  # type: ignore[operator]
    if low > 0:
        assert low <= Range(low, high, log=True).draw(random.Random(seed)) <= high  # type: ignore[operator]


@given(
    st.tuples(*[st.integers(1, 2**63 - 1)] * 2).filter(lambda pair: pair[0] < pair[1]), st.integers(0, 1000)
)
def test_each_whole_number_lies_in_its_range(bounds: tuple[int, int], seed: int) -> None:
    for log in (False, True):
        found = Range(*bounds, log, whole=True).draw(random.Random(seed))
        assert isinstance(found, int)
        assert bounds[0] <= found <= bounds[1]


@st.composite
def spaces(draw: Any) -> list[Dimension]:
    """Dimensions of values, each with conditions on some before it, in any order."""
    made: list[Dimension] = []
    for number in range(draw(st.integers(0, 4))):
        when = {}
        for other in made:
            if draw(st.booleans()):
                assert isinstance(other.kind, Choices)
                when[other.name] = tuple(
                    draw(st.lists(st.sampled_from(other.kind.values), unique=True, min_size=1))
                )
        choices = draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=3))
        made.append(Dimension(f"p{number}", Choices(tuple(choices)), when))
    return list(draw(st.permutations(made)))


@given(spaces())
def test_the_grid_is_what_counting_through_everything_leaves(dimensions: list[Dimension]) -> None:
    by_name = sorted(dimensions, key=lambda one: one.name)
    expected = set()
    for choice in itertools.product(*(one.kind.values for one in by_name)):  # type: ignore[union-attr]
        chosen: dict[str, Any] = {}
        for one, value in zip(by_name, choice, strict=True):
            if all(chosen.get(name) in allowed for name, allowed in one.when.items()):
                chosen[one.name] = value
        expected.add(frozenset(chosen.items()))
    found = [frozenset(one.items()) for one in Space.of(dimensions).grid()]
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(spaces(), st.integers(0, 100), st.integers(1, 100))
def test_each_draw_is_in_the_grid(dimensions: list[Dimension], seed: int, trial: int) -> None:
    space = Space.of(dimensions)
    assert space.draw(seed, trial) in list(space.grid())


def test_a_condition_may_name_a_listed_parameter() -> None:
    listed = [{"optimizer": "sgd"}, {"optimizer": "adam"}]
    momentum = Dimension("momentum", Choices((0.8, 0.9)), {"optimizer": ("sgd",)})
    space = Space.of([momentum], listed)
    assert [one for given in listed for one in space.grid(given)] == [
        {"optimizer": "sgd", "momentum": 0.8},
        {"optimizer": "sgd", "momentum": 0.9},
        {"optimizer": "adam"},
    ]
    with pytest.raises(ValueError, match="not one of its values"):
        Space.of([Dimension("x", Choices((1,)), {"optimizer": ("sdg",)})], listed)
