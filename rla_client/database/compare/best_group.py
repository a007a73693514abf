"""Comparison of the best groups of runs.

Groups are ranked by the mean of a metric. The best two differ where the 95 % interval of the difference of
their means does not include 0 (Welch's t-test, as the groups may spread differently).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rla_client.database.compare.groups import SEED, Group, mean_and_error, of_one_length, t_quantile
from rla_client.database.records.row_view import ALIASES, FIELDS

_LESS_IS_BETTER = ("loss", "error", "err", "regret", "cost")


@dataclass(frozen=True, slots=True)
class TooFewSeeds:
    """Two groups that cannot be told apart.

    Attributes:
        best: place of the best group among all.
        next: place of the second.
        low: of the 95 % interval of the difference of their means.
        high: likewise.
    """

    best: int
    next: int
    low: float
    high: float

    def sentence(self, best: str, second: str) -> str:
        """The same for people, with the names of both groups."""
        interval = f"{self.low:.2g} to {self.high:.2g}"
        return (
            f"too few seeds to tell {best} from {second}: "
            f"the 95 % interval of the difference of their means, {interval}, includes 0"
        )


def less_is_better(metric: str) -> bool:
    """Whether a metric's name says that small values are good ones."""
    return any(metric.lower().endswith(word) or f"{word}/" in metric.lower() for word in _LESS_IS_BETTER)


def too_few_seeds(groups: Sequence[Group], by: Sequence[str], *, minimize: bool) -> TooFewSeeds | None:
    """The best two groups, where more seeds are needed to tell them apart; else None.

    None also for a tie, for runs of unequal length, for groups by seed or by what nobody chooses (the state),
    and where the best group is a single run. A group with a run that diverged has no mean, and is left out.

    Args:
        groups: of runs.
        by: what they are made by.
        minimize: the smallest mean is the best.
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
    """The 95 % interval of the difference of two means; None for a tie."""
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
