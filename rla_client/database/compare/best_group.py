"""Comparison of the best groups of runs.

Groups are ranked by the mean of a metric. The best two differ if the 95 % interval of the difference of
their means excludes 0 (Welch's t-test, since the groups may have different variances).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rla_client.database.compare.groups import SEED, Group, of_one_length
from rla_client.database.compare.mean_interval import mean_and_error, t_quantile
from rla_client.database.records.row_view import ALIASES, FIELDS

_LESS_IS_BETTER = ("loss", "error", "err", "regret", "cost")


@dataclass(frozen=True, slots=True)
class TooFewSeeds:
    """The best two groups, with a difference that is not significant.

    Attributes:
        best: index of the best group.
        next: index of the second best group.
        low: lower end of the 95 % interval of the difference of their means.
        high: upper end.
    """

    best: int
    next: int
    low: float
    high: float

    def sentence(self, best: str, second: str) -> str:
        """A sentence for people, with the names of both groups."""
        interval = f"{self.low:.2g} to {self.high:.2g}"
        return (
            f"too few seeds to tell {best} from {second}: "
            f"the 95 % interval of the difference of their means, {interval}, includes 0"
        )


def less_is_better(metric: str) -> bool:
    """Whether a metric is better when smaller, by its name."""
    return any(metric.lower().endswith(word) or f"{word}/" in metric.lower() for word in _LESS_IS_BETTER)


def too_few_seeds(groups: Sequence[Group], by: Sequence[str], *, minimize: bool) -> TooFewSeeds | None:
    """The best two groups if more seeds are needed to tell them apart; else None.

    None also for a tie, for runs of unequal length, for groups by seed or only by fields that nobody
    chooses (the state), and if the best group is a single run. A group with a diverged run has no mean and
    is left out.

    Args:
        groups: groups of runs.
        by: names of the values that the runs are grouped by.
        minimize: whether the smallest mean is the best.
    """
    if any(name.rpartition(".")[2] == SEED for name in by) or {*by} <= {*FIELDS, *ALIASES}:
        return None
    means = {
        place: sum(group.numbers) / len(group.numbers)
        for place, group in enumerate(groups)
        if group.numbers and all(map(math.isfinite, group.numbers))
    }
    ranked = sorted(means, key=lambda place: means[place] if minimize else -means[place])
    repeated = [place for place in ranked if len(groups[place].numbers) > 1]
    if len(repeated) < 2 or repeated[0] != ranked[0]:  # noqa: PLR2004
        return None
    best, second = groups[repeated[0]], groups[repeated[1]]
    interval = _difference(best.numbers, second.numbers)
    if interval is None or not interval[0] <= 0 <= interval[1]:
        return None
    if not of_one_length([*best.lengths, *second.lengths]):
        return None
    return TooFewSeeds(repeated[0], repeated[1], *interval)


def _difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the difference of two means; None for a tie."""
    (mean, error), (other_mean, other_error) = mean_and_error(first), mean_and_error(second)
    if math.isclose(mean, other_mean, rel_tol=1e-9):
        return None
    difference, both = mean - other_mean, math.hypot(error, other_error)
    if not both:
        return difference, difference
    share, other_share = (error / both) ** 4, (other_error / both) ** 4
    freedom = 1 / (share / (len(first) - 1) + other_share / (len(second) - 1))
    half = t_quantile(max(1, int(freedom))) * both
    return difference - half, difference + half
