"""Interval estimates of scores. Pure.

`scores` is a float array of shape (runs, tasks), preferably normalised so that 1 is the target. The
definitions are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021). Tasks with fewer runs than others are padded with NaN, which every estimate ignores.

Intervals are percentile intervals of a stratified bootstrap: runs are drawn with replacement within each
task. `seed` makes them repeatable. The Student interval of `rla ls --group` is in
`rla_client/database/compare/mean_interval.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rla_client.contract.errors import ArgumentError

DEFAULT_CONFIDENCE = 0.95
DEFAULT_REPETITIONS = 2000  # Monte-Carlo error of a 95 % bound: about 0.05 standard errors
Estimate = Callable[[NDArray[np.float64]], float]
_Band = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
_MATRIX_DIMENSIONS = 2
_AT_ONCE = 250  # resamples in memory: 12 MB for 100 runs of 57 tasks


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate and its confidence interval."""

    point: float
    low: float
    high: float


def as_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """Scores as an array of shape (runs, tasks); a one-dimensional array is one task.

    Raises:
        ArgumentError: the shape is another one, or no score is finite.
    """
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
    most = max(len(task) for task in tasks)
    padded = np.full((most, len(tasks)), np.nan)
    for place, task in enumerate(tasks):
        padded[: len(task), place] = task
    return padded


def mean(scores: ArrayLike) -> float:
    """Mean over tasks of the mean over runs."""
    return float(np.mean(np.nanmean(as_scores(scores), axis=0)))


def median(scores: ArrayLike) -> float:
    """Median over tasks of the mean over runs."""
    return float(np.median(np.nanmean(as_scores(scores), axis=0)))


def interquartile_mean(scores: ArrayLike) -> float:
    """IQM: mean of the middle half of all runs of all tasks (a quarter, rounded down, is cut at each end)."""
    values = as_scores(scores).ravel()
    values = np.sort(values[~np.isnan(values)])
    cut = int(0.25 * values.size)
    return float(np.mean(values[cut : values.size - cut]))


def optimality_gap(scores: ArrayLike, target: float = 1.0) -> float:
    """Mean shortfall of runs below the target; scores above the target count as the target."""
    return float(target - np.nanmean(np.minimum(as_scores(scores), target)))


def probability_of_improvement(scores_x: ArrayLike, scores_y: ArrayLike) -> float:
    """Probability that a run of X beats a run of Y on a task, averaged over tasks; a tie counts half.

    Raises:
        ArgumentError: the numbers of tasks differ.
    """
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
    """Fraction of runs (or of tasks, by their mean) with a score above each threshold.

    Returns:
        Float64 array, shape (thresholds,).
    """
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
        repetitions: number of resamples.
        seed: seed of the resampling.
    """
    array = as_scores(scores)
    draws = [estimate(sample) for (sample,) in _resamples([array], repetitions, seed)]
    low, high = _bounds(draws, confidence)
    return Interval(estimate(array), float(low), float(high))


def improvement_interval(
    scores_x: ArrayLike,
    scores_y: ArrayLike,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    repetitions: int = DEFAULT_REPETITIONS,
    seed: int = 0,
) -> Interval:
    """`probability_of_improvement` with its interval; X and Y are resampled independently."""
    pair = [as_scores(scores_x), as_scores(scores_y)]
    draws = [probability_of_improvement(*both) for both in _resamples(pair, repetitions, seed)]
    low, high = _bounds(draws, confidence)
    return Interval(probability_of_improvement(*pair), float(low), float(high))


def profile_band(
    scores: ArrayLike,
    thresholds: ArrayLike,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    repetitions: int = DEFAULT_REPETITIONS,
    seed: int = 0,
) -> _Band:
    """`performance_profile` with pointwise bounds: (profile, low, high), each of shape (thresholds,)."""
    array = as_scores(scores)
    draws = [performance_profile(sample, thresholds) for (sample,) in _resamples([array], repetitions, seed)]
    low, high = _bounds(draws, confidence)
    return performance_profile(array, thresholds), low, high


def _bounds(draws: Sequence[ArrayLike], confidence: float) -> NDArray[np.float64]:
    """Lower and upper percentile bounds of resampled estimates."""
    edge = (1 - confidence) / 2 * 100
    return np.percentile(np.asarray(draws, dtype=np.float64), [edge, 100 - edge], axis=0)


def _resamples(
    arrays: Sequence[NDArray[np.float64]], repetitions: int, seed: int
) -> Iterator[list[NDArray[np.float64]]]:
    """Resampled arrays: within each column, values drawn with replacement from those that are not NaN."""
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
