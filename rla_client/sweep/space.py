"""Search space of a sweep. Pure.

A trial has a value for each dimension with a condition that holds. Each dimension is drawn after those in
its condition, otherwise in the order of the file. The values of trial n of a random search depend only on
the sweep's random seed, n and the dimension's name: more trials or further dimensions change no earlier
value.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Value: TypeAlias = "str | int | float | bool | None"
Parameters: TypeAlias = dict[str, Any]

MAX_GRID = 100_000  # trials; more are a mistake in the file
MAX_RUNS = 200_000  # trials times seeds; each has a line of the journal and three files
MAX_DIMENSIONS = 200  # each is a level of recursion in the grid


@dataclass(frozen=True, slots=True)
class Choices:
    """One of several values; a constant is a single value."""

    values: tuple[Value, ...]

    def draw(self, generator: random.Random) -> Value:
        """A value, with equal probabilities."""
        return generator.choice(self.values)

    def holds(self, value: Value) -> bool:
        """Whether a value is one of them."""
        return value in self.values


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two bounds, both included."""

    low: float
    high: float
    log: bool = False  # its logarithm is uniform
    whole: bool = False  # whole numbers only

    def draw(self, generator: random.Random) -> Value:
        """A number of the range."""
        if self.whole and not self.log:
            return generator.randint(int(self.low), int(self.high))
        if not self.log:
            share = generator.random()  # not `low + share * (high - low)`: the difference may be infinite
            return min(max(self.low * (1 - share) + self.high * share, self.low), self.high)
        # a whole number, also the first and last, gets the share of the logarithm around it
        edge = 0.5 if self.whole else 0.0
        found = math.exp(generator.uniform(math.log(self.low - edge), math.log(self.high + edge)))
        found = min(max(found, self.low), self.high)
        return min(max(round(found), int(self.low)), int(self.high)) if self.whole else found

    def holds(self, value: Value) -> bool:
        """Whether a value lies in the range."""
        return isinstance(value, int | float) and self.low <= value <= self.high


Kind: TypeAlias = "Choices | Range"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One hyper-parameter."""

    name: str  # name of the program's parameter
    kind: Kind  # its possible values
    # condition: other dimension → values for which this one exists; empty: always
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def check(self, kinds: Mapping[str, Kind]) -> None:
        """Check that the condition can hold.

        Args:
            kinds: possible values of each parameter.

        Raises:
            ValueError: it can never hold.
        """
        for other, values in self.when.items():
            if other not in kinds or other == self.name:
                raise ValueError(f"{self.name}: its `when` names {other!r}, which is not another parameter")
            kind = kinds[other]
            for value in values:
                text = f"{self.name}: its `when` requires {other} = {value!r}, which"
                if not kind.holds(value):
                    raise ValueError(f"{text} is not one of its values")
                if isinstance(kind, Range) and not kind.whole and kind.low < kind.high:
                    raise ValueError(f"{text} a draw from a continuous range never hits")

    def applies(self, chosen: Mapping[str, Any]) -> bool:
        """Whether the condition holds for the values chosen so far."""
        return all(name in chosen and chosen[name] in values for name, values in self.when.items())


@dataclass(frozen=True, slots=True)
class Space:
    """All dimensions, each after those in its condition."""

    dimensions: tuple[Dimension, ...] = ()

    @classmethod
    def of(cls, dimensions: Sequence[Dimension], listed: Sequence[Parameters] = ()) -> Space:
        """Space of dimensions, given in any order.

        Args:
            dimensions: the dimensions.
            listed: listed values of other parameters, which conditions may also name.

        Raises:
            ValueError: a condition can never hold, conditions are circular, or there are too many dimensions.
        """
        if len(dimensions) > MAX_DIMENSIONS:
            raise ValueError(f"has {len(dimensions)} of them; at most {MAX_DIMENSIONS}")
        given: dict[str, list[Value]] = {}
        for choice in listed:
            for name, value in choice.items():
                given.setdefault(name, []).append(value)
        kinds: dict[str, Kind] = {name: Choices(tuple(values)) for name, values in given.items()}
        for one in dimensions:
            one.check({**kinds, **{other.name: other.kind for other in dimensions}})
        placed: dict[str, Dimension] = {}
        left = list(dimensions)
        while left:
            ready = next((one for one in left if one.when.keys() <= placed.keys() | given.keys()), None)
            if ready is None:
                raise ValueError(f"the conditions of {', '.join(one.name for one in left)} need each other")
            placed[ready.name] = ready
            left.remove(ready)
        return cls(tuple(placed.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all dimensions."""
        return tuple(one.name for one in self.dimensions)

    @property
    def always(self) -> frozenset[str]:
        """Names of the dimensions that every trial has."""
        return frozenset(one.name for one in self.dimensions if not one.when)

    @property
    def ranges(self) -> tuple[str, ...]:
        """Names of the dimensions that cannot be enumerated."""
        return tuple(one.name for one in self.dimensions if isinstance(one.kind, Range))

    def grid(self, given: Parameters | None = None) -> Iterator[Parameters]:
        """All combinations, with the last dimension changing first; there must be no ranges.

        Args:
            given: further parameters of all combinations.
        """
        return self._combine(given or {}, 0)

    def _combine(self, chosen: Parameters, place: int) -> Iterator[Parameters]:
        if place == len(self.dimensions):
            yield dict(chosen)
            return
        one = self.dimensions[place]
        if not one.applies(chosen):
            yield from self._combine(chosen, place + 1)
            return
        assert isinstance(one.kind, Choices)
        for value in one.kind.values:
            yield from self._combine({**chosen, one.name: value}, place + 1)

    def draw(self, random_seed: int, trial: int) -> Parameters:
        """Parameters of trial `trial` of a random search."""
        chosen: Parameters = {}
        for one in self.dimensions:
            if one.applies(chosen):
                chosen[one.name] = one.kind.draw(random.Random(f"{random_seed}/{trial}/{one.name}"))  # noqa: S311
        return chosen


Method: TypeAlias = Literal["grid", "list", "random", "optuna"]
METHODS: tuple[Method, ...] = ("grid", "list", "random", "optuna")
