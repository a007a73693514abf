"""Search space of a sweep. Pure.

A trial is one choice of a value for each dimension whose condition holds. Dimensions are drawn in an order
in which each comes behind those that its condition names, else as they were given. What trial n of a random
search gets depends on the sweep's random seed, n and the dimension's name alone: more trials or one more
dimension change no earlier value.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Value: TypeAlias = "str | int | float | bool | None"
Parameters: TypeAlias = dict[str, Any]

MAX_GRID = 100_000  # trials; more is a slip in the file, and none of them could be looked at
MAX_RUNS = 200_000  # trials with their seeds; each is a line of the journal and three files
MAX_DIMENSIONS = 200  # each is a level of recursion of the grid


@dataclass(frozen=True, slots=True)
class Choices:
    """One of some values; a constant is the only one of them."""

    values: tuple[Value, ...]

    def draw(self, generator: random.Random) -> Value:
        """Any of them, each as likely."""
        return generator.choice(self.values)

    def holds(self, value: Value) -> bool:
        """Whether it is one of them."""
        return value in self.values


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two bounds, both included."""

    low: float
    high: float
    log: bool = False  # its logarithm is uniform, not itself
    whole: bool = False  # whole numbers only

    def draw(self, generator: random.Random) -> Value:
        """A number of the range."""
        if self.whole and not self.log:
            return generator.randint(int(self.low), int(self.high))
        if not self.log:
            share = generator.random()  # not `low + share * (high - low)`: the difference may be infinite
            return min(max(self.low * (1 - share) + self.high * share, self.low), self.high)
        # a whole number gets the share of the logarithm that lies around it, also the first and last
        edge = 0.5 if self.whole else 0.0
        found = math.exp(generator.uniform(math.log(self.low - edge), math.log(self.high + edge)))
        found = min(max(found, self.low), self.high)
        return min(max(round(found), int(self.low)), int(self.high)) if self.whole else found

    def holds(self, value: Value) -> bool:
        """Whether it lies in the range."""
        return isinstance(value, int | float) and self.low <= value <= self.high


Kind: TypeAlias = "Choices | Range"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One hyper-parameter."""

    name: str  # as the program takes it
    kind: Kind  # what it may be
    # other dimension → the values under which this one is there; empty: always
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def check(self, kinds: Mapping[str, Kind]) -> None:
        """Be sure that the condition can hold.

        Args:
            kinds: what each parameter may be.

        Raises:
            ValueError: it cannot.
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
        """Whether its condition holds, given what was chosen before."""
        return all(name in chosen and chosen[name] in values for name, values in self.when.items())


@dataclass(frozen=True, slots=True)
class Space:
    """All dimensions, each behind those that its condition names."""

    dimensions: tuple[Dimension, ...] = ()

    @classmethod
    def of(cls, dimensions: Sequence[Dimension], listed: Sequence[Parameters] = ()) -> Space:
        """The space of dimensions in any order.

        Args:
            dimensions: some of them under conditions.
            listed: choices of other parameters, which conditions may name, too.

        Raises:
            ValueError: a condition can never hold, conditions go in a circle, or there are too many.
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
        """Of all dimensions."""
        return tuple(one.name for one in self.dimensions)

    @property
    def always(self) -> frozenset[str]:
        """Names of those that every trial has."""
        return frozenset(one.name for one in self.dimensions if not one.when)

    @property
    def ranges(self) -> tuple[str, ...]:
        """Names of those that cannot be counted through."""
        return tuple(one.name for one in self.dimensions if isinstance(one.kind, Range))

    def grid(self, given: Parameters | None = None) -> Iterator[Parameters]:
        """Each combination once, the last dimension changing first; there may be no ranges.

        Args:
            given: what all of them have besides.
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
        """What trial `trial` of a random search tries."""
        chosen: Parameters = {}
        for one in self.dimensions:
            if one.applies(chosen):
                chosen[one.name] = one.kind.draw(random.Random(f"{random_seed}/{trial}/{one.name}"))  # noqa: S311
        return chosen


Method: TypeAlias = Literal["grid", "list", "random", "optuna"]
METHODS: tuple[Method, ...] = ("grid", "list", "random", "optuna")
