"""Statistics of reinforcement-learning scores over seeds and tasks. Pure: numbers in, numbers out.

`scores` is a float array of shape (runs, tasks), one score a run and task, best normalised so
that 1 is the target. The definitions are those of Agarwal et al., "Deep Reinforcement Learning
at the Edge of the Statistical Precipice" (2021). Tasks with fewer runs than others are padded
with NaN: every estimate leaves NaN out.

Intervals are percentile intervals of a stratified bootstrap: runs are drawn with replacement
within each task. `seed` makes them repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError
from rla_client.contract.textformat import unknown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

DEFAULT_CONFIDENCE = 0.95
DEFAULT_REPETITIONS = 2000  # Monte-Carlo error of a 95 % bound: about 0.05 standard errors
Estimate = Callable[["NDArray[np.float64]"], float]
_MATRIX_DIMENSIONS = 2
_AT_ONCE = 250  # resamples in memory: 12 MB for 100 runs of 57 tasks


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate and its confidence interval."""

    point: float
    low: float
    high: float


def as_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """Scores as an array of shape (runs, tasks); one dimension is one task.

    Raises:
        ArgumentError: another shape, or no score at all.
    """
    import numpy as np

    array: NDArray[np.float64] = np.asarray(scores, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != _MATRIX_DIMENSIONS:
        message = f"scores must have the shape (runs, tasks), got {array.shape}"
        raise ArgumentError(message)
    if not np.isfinite(array).any():
        message = "there is no finite score"
        raise ArgumentError(message)
    return array


def pad(tasks: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Tasks with unequal numbers of runs as one array of shape (most runs, tasks), NaN where missing."""
    import numpy as np

    most = max(len(task) for task in tasks)
    padded = np.full((most, len(tasks)), np.nan)
    for place, task in enumerate(tasks):
        padded[: len(task), place] = task
    return padded


def mean(scores: ArrayLike) -> float:
    """Mean over tasks of the mean over runs."""
    import numpy as np

    return float(np.mean(np.nanmean(as_scores(scores), axis=0)))


def median(scores: ArrayLike) -> float:
    """Median over tasks of the mean over runs."""
    import numpy as np

    return float(np.median(np.nanmean(as_scores(scores), axis=0)))


def interquartile_mean(scores: ArrayLike) -> float:
    """IQM: mean of the middle half of all runs of all tasks (a quarter, rounded down, is cut at each end)."""
    import numpy as np

    values = as_scores(scores).ravel()
    values = np.sort(values[~np.isnan(values)])
    cut = int(0.25 * values.size)
    return float(np.mean(values[cut : values.size - cut]))


def optimality_gap(scores: ArrayLike, target: float = 1.0) -> float:
    """By how much runs fall short of the target on average; what exceeds it does not make up for it."""
    import numpy as np

    return float(target - np.nanmean(np.minimum(as_scores(scores), target)))


def probability_of_improvement(scores_x: ArrayLike, scores_y: ArrayLike) -> float:
    """Probability that a run of X beats a run of Y on a task, mean over tasks; a tie counts half.

    Raises:
        ArgumentError: the numbers of tasks differ.
    """
    import numpy as np

    left, right = as_scores(scores_x), as_scores(scores_y)
    if left.shape[1] != right.shape[1]:
        message = f"X has {left.shape[1]} tasks and Y {right.shape[1]}"
        raise ArgumentError(message)
    gaps = left[:, None, :] - right[None, :, :]  # NaN where a run is missing
    wins = np.sum(gaps > 0, axis=(0, 1)) + 0.5 * np.sum(gaps == 0, axis=(0, 1))
    played = np.sum(~np.isnan(gaps), axis=(0, 1))
    return float(np.mean(wins[played > 0] / played[played > 0]))


def performance_profile(
    scores: ArrayLike, thresholds: ArrayLike, *, of_task_means: bool = False
) -> NDArray[np.float64]:
    """Fraction of runs (or of tasks by their mean) whose score is above each threshold.

    Returns:
        Float64 array, shape (thresholds,).
    """
    import numpy as np

    values = as_scores(scores)
    values = np.nanmean(values, axis=0) if of_task_means else values[~np.isnan(values)]
    limits = np.asarray(thresholds, dtype=np.float64)
    return np.asarray(np.mean(values.ravel()[None, :] > limits[:, None], axis=1), dtype=np.float64)


def bootstrap(
    scores: ArrayLike,
    estimate: Estimate,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    repetitions: int = DEFAULT_REPETITIONS,
    seed: int = 0,
) -> Interval:
    """Point estimate with a stratified bootstrap percentile interval.

    Args:
        scores: shape (runs, tasks).
        estimate: `mean`, `median`, `interquartile_mean`, `optimality_gap`, or a function of your own.
        confidence: such as 0.95.
        repetitions: how many resamples.
        seed: of the resampling.
    """
    import numpy as np

    array = as_scores(scores)
    draws = [estimate(sample) for (sample,) in _resamples([array], repetitions, seed)]
    edge = (1 - confidence) / 2 * 100
    low, high = np.percentile(draws, [edge, 100 - edge])
    return Interval(estimate(array), float(low), float(high))


def improvement_interval(
    scores_x: ArrayLike,
    scores_y: ArrayLike,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    repetitions: int = DEFAULT_REPETITIONS,
    seed: int = 0,
) -> Interval:
    """`probability_of_improvement` with its interval; X and Y are resampled apart from each other."""
    import numpy as np

    pair = [as_scores(scores_x), as_scores(scores_y)]
    draws = [probability_of_improvement(*both) for both in _resamples(pair, repetitions, seed)]
    edge = (1 - confidence) / 2 * 100
    low, high = np.percentile(draws, [edge, 100 - edge])
    return Interval(probability_of_improvement(*pair), float(low), float(high))


def profile_band(
    scores: ArrayLike,
    thresholds: ArrayLike,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    repetitions: int = DEFAULT_REPETITIONS,
    seed: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """`performance_profile` with pointwise bounds: (profile, low, high), each of shape (thresholds,)."""
    import numpy as np

    array = as_scores(scores)
    draws = [performance_profile(sample, thresholds) for (sample,) in _resamples([array], repetitions, seed)]
    edge = (1 - confidence) / 2 * 100
    low, high = np.percentile(np.array(draws), [edge, 100 - edge], axis=0)
    return performance_profile(array, thresholds), low, high


def _resamples(
    arrays: Sequence[NDArray[np.float64]], repetitions: int, seed: int
) -> Iterator[list[NDArray[np.float64]]]:
    """Resampled arrays: rows drawn anew within each column, among those that are there."""
    import numpy as np

    random = np.random.default_rng(seed)
    columns = [[column[~np.isnan(column)] for column in array.T] for array in arrays]
    for start in range(0, repetitions, _AT_ONCE):
        count = min(_AT_ONCE, repetitions - start)
        blocks = [np.full((count, *array.shape), np.nan) for array in arrays]
        for block, parts in zip(blocks, columns, strict=True):
            for place, part in enumerate(parts):
                if part.size:
                    drawn = random.integers(0, part.size, (count, part.size))
                    block[:, : part.size, place] = part[drawn]
        for repetition in range(count):
            yield [block[repetition] for block in blocks]


def curve_band(
    values: NDArray[np.float64], band: str, *, seed: int = 0, repetitions: int = 500
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Centre and band of curves over seeds.

    Args:
        values: shape (runs, points), NaN where a run has no value.
        band: std, stderr, range, ci (95 % bootstrap of the mean), iqm (with its bootstrap band),
            median (with quartiles), or none.
        seed: of the bootstrap.
        repetitions: of the bootstrap.

    Returns:
        (centre, low, high), shape (points,) each.

    Raises:
        ArgumentError: another band.
    """
    import warnings

    import numpy as np

    makers = {"std": _spread, "stderr": _spread, "none": _spread, "range": _range, "median": _quartiles}
    if band not in {*makers, "ci", "iqm"}:
        raise unknown(band, [*makers, "ci", "iqm"], f"band {band!r} is unknown")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value give NaN, as they should
        if band in makers:
            return makers[band](values, band)
        random = np.random.default_rng(seed)
        rows = random.integers(0, len(values), (repetitions, len(values)))
        drawn = rows + np.arange(repetitions)[:, None] * len(values)
        counts = np.bincount(drawn.ravel(), minlength=rows.size).reshape(rows.shape).astype(np.float64)
        centres = _means if band == "ci" else _quartile_means
        centre = centres(values, np.ones((1, len(values))))[0]
        low, high = _percentiles(centres(values, counts), [2.5, 97.5])
        return centre, low, high


def _percentiles(values: NDArray[np.float64], wanted: Sequence[float]) -> NDArray[np.float64]:
    """`np.nanpercentile` of columns, which takes them one by one; the same numbers to the bit."""
    import numpy as np

    columns = np.ascontiguousarray(values.T)
    columns.sort(axis=1)  # NaN last
    last = np.count_nonzero(~np.isnan(columns), axis=1) - 1  # -1: NaN itself
    places = last * (np.array(wanted) / 100)[:, None]
    below = np.floor(places).astype(int)
    number = np.arange(len(columns))
    low, high = columns[number, below], columns[number, np.minimum(below + 1, last)]
    part, step = places - below, high - low
    found: NDArray[np.float64] = np.where(part < 0.5, low + step * part, high - step * (1 - part))  # noqa: PLR2004
    return found  # by numpy's formula


def _means(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over runs that are drawn so many times each.

    Args:
        values: shape (runs, points).
        counts: shape (draws, runs).

    Returns:
        Shape (draws, points); NaN where no run has a value.
    """
    import numpy as np

    there = ~np.isnan(values)
    if there.all():
        return np.asarray(counts @ values / counts.sum(axis=1, keepdims=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((counts @ np.where(there, values, 0.0)) / (counts @ there.astype(np.float64)))


def _quartile_means(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `_means`, of the middle half of what was drawn; a quarter, rounded down, is cut at each end."""
    import numpy as np

    found = np.full((len(counts), values.shape[1]), np.nan)
    for point, column in enumerate(values.T):
        there = np.flatnonzero(~np.isnan(column))
        order = there[np.argsort(column[there], kind="stable")]
        times = counts[:, order]
        upto = np.cumsum(times, axis=1)
        total = upto[:, -1:] if order.size else np.zeros((len(counts), 1))
        cut = np.floor(0.25 * total)
        weight = np.clip(np.minimum(upto, total - cut) - np.maximum(upto - times, cut), 0.0, None)
        with np.errstate(invalid="ignore", divide="ignore"):
            found[:, point] = weight @ column[order] / weight.sum(axis=1)
    return found


_Band = tuple["NDArray[np.float64]", "NDArray[np.float64]", "NDArray[np.float64]"]


def _spread(values: NDArray[np.float64], band: str) -> _Band:
    import numpy as np

    centre, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    if band == "stderr":
        spread = spread / np.sqrt(np.maximum(np.sum(~np.isnan(values), axis=0), 1))
    if band == "none":
        return centre, centre, centre
    return centre, centre - spread, centre + spread


def _range(values: NDArray[np.float64], _: str) -> _Band:
    import numpy as np

    return np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)


def _quartiles(values: NDArray[np.float64], _: str) -> _Band:
    low, centre, high = _percentiles(values, [25, 50, 75])
    return centre, low, high
