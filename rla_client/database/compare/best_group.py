"""The confidence in the choice of the best group of runs.

Groups of runs that differ in their seeds are ranked by the mean of a metric. Both answers come from a
bootstrap of that ranking: runs are drawn anew, with replacement, within each group. Without numpy.

- *Enough*: how often the group that is first stays first, with as many runs as there are and with more. Two
  or three runs say little about how they spread, so they are never called enough.
- *Flattered*: a group that was chosen because its mean is the best is, on average, less good than that
  (Patterson et al., JMLR 25, 2024). By how much is what the winners of the draws lose when they are judged by
  all runs, which is rather too little. Less than `NEGLIGIBLE` is not told. Seeds that only the chosen group
  has chose nothing, so they report it honestly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from rla_client.database.compare.groups import SEED, Group, mean_and_interval
from rla_client.database.records.row_view import ALIASES, FIELDS
from rla_client.database.text.safe_text import clean

SURE = 0.95  # of the draws in which the first group stays first
LEAST = 4  # runs a group that may be called enough: of two equal groups of three, one is on top 1 time in 10
COUNTS = (4, 5, 7, 10, 15, 20, 30, 50)  # runs a group that are tried
DRAWS = 400  # of each count: a share of 95 % is known to 1 %
EXACT = 50  # runs; the mean of more is drawn from the normal distribution that it has by then
NEGLIGIBLE = 0.1  # of the standard error of the chosen mean; what `DRAWS` say is off by half of that
MAX_GROUPS = 8  # the best ones; of those behind them none is in the way of the first
_LESS_IS_BETTER = ("loss", "error", "err", "regret", "cost")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is known of choosing the first of some groups.

    Attributes:
        best: its place among them.
        runs: of the group with the fewest runs, of those that were compared.
        kept: share of the draws in which it stays first.
        enough: runs a group with which that is `SURE`; None: more than the largest of `COUNTS`.
        flatters: by how much its mean is too good at least, in units of the metric; 0 where it is next to
            nothing, and where all runs have the same seed.
        others: its runs on seeds that no other group has.
    """

    best: int
    runs: int
    kept: float
    enough: int | None
    flatters: float
    others: tuple[float, ...]


def less_is_better(metric: str) -> bool:
    """Whether a metric's name says that small values are good ones."""
    return any(metric.lower().endswith(word) or f"{word}/" in metric.lower() for word in _LESS_IS_BETTER)


def judge(groups: Sequence[Group], by: Sequence[str], *, minimize: bool) -> Choice | None:
    """What the runs say of choosing the best group; None where they say nothing.

    That is so of groups by seed or by what nobody chooses (the state), where fewer than two groups have two
    runs, and where a single run is the best. A group with a run that diverged has no mean, and is not chosen.

    Args:
        groups: of runs.
        by: what they are made by.
        minimize: the smallest mean is the best.
    """
    if any(name.rpartition(".")[2] == SEED for name in by) or {*by} <= {*FIELDS, *ALIASES}:
        return None
    sign = -1.0 if minimize else 1.0
    values = [
        [sign * number for number in group.numbers] if all(map(math.isfinite, group.numbers)) else []
        for group in groups
    ]
    order = sorted(
        (place for place, of in enumerate(values) if len(of) > 1), key=lambda at: -_mean(values[at])
    )
    singles = [of[0] for of in values if len(of) == 1]
    if len(order) < 2 or max(singles, default=-math.inf) > _mean(values[order[0]]):  # noqa: PLR2004
        return None
    compared = [_stretched(values[place]) for place in order[:MAX_GROUPS]]
    draws = list(_draws(compared, None))
    kept = sum(winner == 0 for winner, _ in draws) / len(draws)
    lost = sum(mean - _mean(compared[winner]) for winner, mean in draws) / len(draws)
    flatters = (
        0.0 if lost <= _negligible(compared[0]) or _one_seed(groups[place] for place in order) else lost
    )
    fewest = min(map(len, compared))
    enough = _enough(compared, kept, fewest)
    return Choice(order[0], fewest, kept, enough, flatters, _others(groups, order[0]))


def _negligible(values: Sequence[float]) -> float:
    return NEGLIGIBLE * _spread(values)[1] / math.sqrt(len(values))


def _one_seed(groups: Iterable[Group]) -> bool:
    seeds = {seed for group in groups for seed in group.seeds}
    return len(seeds) == 1 and None not in seeds


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _stretched(values: Sequence[float]) -> list[float]:
    """Values further from their mean, so that those drawn from a few spread as what the few are from."""
    mean, factor = _mean(values), math.sqrt(len(values) / (len(values) - 1))
    return [mean + (value - mean) * factor for value in values]


def _spread(values: Sequence[float]) -> tuple[float, float]:
    mean = _mean(values)
    return mean, math.hypot(*(value - mean for value in values)) / math.sqrt(len(values))  # no overflow


def _draws(groups: Sequence[Sequence[float]], count: int | None) -> Iterator[tuple[int, float]]:
    """The group with the largest mean, and that mean, of each of `DRAWS`; None: as many runs as there are."""
    random = Random(0)  # noqa: S311 - the same answer each time
    spreads = [_spread(group) for group in groups]
    for _ in range(DRAWS):
        means = []
        for group, (centre, spread) in zip(groups, spreads, strict=True):
            size = count or len(group)
            means.append(
                sum(random.choices(group, k=size)) / size
                if size <= EXACT
                else random.gauss(centre, spread / math.sqrt(size))
            )
        mean = max(means)
        first = [place for place, one in enumerate(means) if one == mean]
        yield first[0] if len(first) == 1 else random.choice(first), mean


def _enough(groups: Sequence[Sequence[float]], kept: float, fewest: int) -> int | None:
    if kept >= SURE:
        return max(fewest, LEAST)
    for count in COUNTS:
        if count > fewest and sum(winner == 0 for winner, _ in _draws(groups, count)) >= SURE * DRAWS:
            return count
    return None


def _others(groups: Sequence[Group], best: int) -> tuple[float, ...]:
    chose = {seed for place, group in enumerate(groups) if place != best for seed in group.seeds}
    mine = groups[best]
    return tuple(
        number
        for number, seed in zip(mine.numbers, mine.seeds, strict=True)
        if seed is not None and seed not in chose and math.isfinite(number)
    )


def told(choice: Choice, name: str) -> list[str]:
    """A line on whether the runs are enough, and one on what to report where that is another value.

    Args:
        choice: what `judge` found.
        name: of the group, for people.
    """
    share = f"{name} stays first in {choice.kept:.0%} of bootstrap draws"
    runs = f"{choice.runs} runs a group"
    if choice.kept >= SURE and choice.runs < LEAST:
        first = f"{share}, but {runs} are too few to say how they spread: make it {LEAST} or more"
    elif choice.kept >= SURE:
        first = f"{share}: {runs} are enough to choose it"
    elif choice.enough is None:
        more = f", and {COUNTS[-1]} would not be either" if choice.runs < COUNTS[-1] else ""
        first = f"{share}: {runs} are not enough to choose it{more}"
    else:
        first = f"{share}: {runs} are not enough to choose it, about {choice.enough} would be"
    return [first, *_honest(choice, name)]


def _honest(choice: Choice, name: str) -> list[str]:
    if len(choice.others) > 1:
        mean, interval = mean_and_interval(choice.others)
        runs = f"{len(choice.others)} runs on seeds that no other group has"
        return [f"report {name} by the {runs}: {clean(mean)} ± {interval:.2g}"]
    if not choice.flatters:
        return []
    better = f"the best of several looks better than it is, {name} by {choice.flatters:.2g} or more"
    return [f"{better}: run it with new seeds and report those"]
