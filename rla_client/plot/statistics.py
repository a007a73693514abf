"""The numbers behind a plot: scores over seeds and tasks, curves on one x axis, and their bands. Pure.

`scores` is a float array of shape (runs, tasks), one score a run and task, best normalised so
that 1 is the target. The definitions are those of Agarwal et al., "Deep Reinforcement Learning
at the Edge of the Statistical Precipice" (2021). Tasks with fewer runs than others are padded
with NaN: every estimate leaves NaN out.

Intervals are percentile intervals of a stratified bootstrap: runs are drawn with replacement
within each task. `seed` makes them repeatable.

A curve is a pair of float arrays (x ascending, y), shape (points,) each. `resample` of RLA is a
symmetric exponential moving average on an even grid: each grid point takes the mean of all
points, weighted by exp(-distance / (smooth_step grid steps)).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rla_client.contract.errors import ArgumentError
from rla_client.contract.text.spelling import unknown

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
DEFAULT_CONFIDENCE = 0.95
DEFAULT_REPETITIONS = 2000  # Monte-Carlo error of a 95 % bound: about 0.05 standard errors
Estimate = Callable[[NDArray[np.float64]], float]
_Band = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
FALLBACK_POINTS = 512  # grid for runs that logged at different time-steps
MAX_DECAYS = 300.0  # exp of it, times a value, is a number
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
    """By how much runs fall short of the target on average; what exceeds it does not make up for it."""
    return float(target - np.nanmean(np.minimum(as_scores(scores), target)))


def probability_of_improvement(scores_x: ArrayLike, scores_y: ArrayLike) -> float:
    """Probability that a run of X beats a run of Y on a task, mean over tasks; a tie counts half.

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
    """Fraction of runs (or of tasks by their mean) whose score is above each threshold.

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
        repetitions: how many resamples.
        seed: of the resampling.
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
    """`probability_of_improvement` with its interval; X and Y are resampled apart from each other."""
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
    """The lower and the upper bound of what was drawn."""
    edge = (1 - confidence) / 2 * 100
    return np.percentile(np.asarray(draws, dtype=np.float64), [edge, 100 - edge], axis=0)


def _resamples(
    arrays: Sequence[NDArray[np.float64]], repetitions: int, seed: int
) -> Iterator[list[NDArray[np.float64]]]:
    """Resampled arrays: rows drawn anew within each column, among those that are there."""
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


def group_curves(found: Sequence[Curve], points: int, smooth: float = 0.0) -> Curve:
    """The curves of one group, ready for `statistics.curve_band`.

    Args:
        found: at least one, none of them empty.
        points: on the x axis at most.
        smooth: decay length of a moving average in points; 0: the values as they are.

    Returns:
        (x of shape (points,), y of shape (curves, points), NaN where a curve has ended).
    """
    longest = max(len(curve[0]) for curve in found)  # a finer grid would smooth over nothing
    grid = min(points, longest) if smooth > 0 else 0
    return align(found, resample=grid, smooth_step=smooth or 1.0, vary_len=True, most=points)


def _spread_over(count: int, points: int) -> NDArray[np.int_]:
    """Places of `points` entries spread over `count`, both ends among them."""
    places: NDArray[np.int_] = np.linspace(0, count - 1, points).round().astype(int)
    return places


def sorted_curve(curve: Curve) -> Curve:
    """Ascending x; of points with the same x the last one stays."""
    xs, ys = curve
    if len(xs) < 2 or np.all(np.diff(xs) > 0):  # noqa: PLR2004
        return xs, ys
    order = np.argsort(xs, kind="stable")
    xs, ys = xs[order], ys[order]
    last = np.append(np.diff(xs) > 0, True)
    return xs[last], ys[last]


def smooth(curve: Curve, grid: NDArray[np.float64], smooth_step: float) -> NDArray[np.float64]:
    """Symmetric exponential moving average of a curve at grid points, shape (grid,).

    Args:
        curve: x ascending.
        grid: even, ascending, at least two points.
        smooth_step: decay length in grid steps.
    """
    xs, ys = curve
    period = max((grid[-1] - grid[0]) / (len(grid) - 1) * smooth_step, 1e-300)
    sums, counts = _decayed(xs, ys, grid, period)
    back_sums, back_counts = _decayed(-xs[::-1], ys[::-1], -grid[::-1], period)
    total = sums + back_sums[::-1]
    weight = counts + back_counts[::-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weight > 0, total / weight, np.interp(grid, xs, ys))


def _decayed(
    xs: NDArray[np.float64], ys: NDArray[np.float64], grid: NDArray[np.float64], period: float
) -> Curve:
    """For each grid point the decayed sums of y and of 1 over the points up to it."""
    cell = np.searchsorted(grid, xs, side="left")
    inside = cell < len(grid)
    weights = np.exp(-(grid[cell[inside]] - xs[inside]) / period)
    sums = np.bincount(cell[inside], weights * ys[inside], len(grid)).astype(np.float64)
    counts = np.bincount(cell[inside], weights, len(grid)).astype(np.float64)
    ages = (grid - grid[0]) / period
    return _faded(sums, ages), _faded(counts, ages)


def _faded(sums: NDArray[np.float64], ages: NDArray[np.float64]) -> NDArray[np.float64]:
    """What has come together up to each point, where everything decays by exp(-age).

    Blocks are summed up at once as long as their weights are numbers.
    """
    found = np.empty_like(sums)
    start, before = 0, 0.0
    while start < len(sums):
        end = max(int(np.searchsorted(ages, ages[start] + MAX_DECAYS, "right")), start + 1)
        growth = np.exp(ages[start:end] - ages[start])
        gap = ages[start] - ages[start - 1] if start else 0.0
        found[start:end] = (np.cumsum(sums[start:end] * growth) + before * np.exp(-gap)) / growth
        start, before = end, found[end - 1]
    return found


def align(
    curves: Sequence[Curve],
    *,
    resample: int = 0,
    smooth_step: float = 1.0,
    vary_len: bool = False,
    most: int = 0,
) -> Curve:
    """Curves on one axis.

    Args:
        curves: at least one, none of them empty.
        resample: points of an even grid over the common range; 0 keeps the points as they are.
        smooth_step: see `smooth`.
        vary_len: continue to the end of the longest curve; shorter ones are NaN there.
        most: without `resample`, so many of the points, spread over them; fewer than two: all.

    Returns:
        (x of shape (points,), y of shape (curves, points)). Without `resample` curves that were
        logged at the same x keep it; others are interpolated linearly to a grid.
    """
    curves = [sorted_curve(curve) for curve in curves]
    ends = [curve[0][-1] for curve in curves]
    low = max(curve[0][0] for curve in curves) if not vary_len else min(curve[0][0] for curve in curves)
    high = max(ends) if vary_len else min(ends)
    if high <= low:  # the ranges do not meet: show each where it is
        low, high, vary_len = min(curve[0][0] for curve in curves), max(ends), True
    if resample > 1 and high > low:
        grid = np.linspace(low, high, resample)
        return grid, np.array(
            [_within(curve, grid, smooth(curve, grid, smooth_step), vary_len) for curve in curves]
        )
    longest = max((curve[0] for curve in curves), key=len)
    if all(np.array_equal(curve[0], longest[: len(curve[0])]) for curve in curves):
        length = len(longest) if vary_len else min(len(curve[0]) for curve in curves)
        kept = _spread_over(length, most) if length > most > 1 else slice(None)
        return longest[:length][kept], np.array([_up_to(ys, length)[kept] for _, ys in curves])
    points = min(max(len(curve[0]) for curve in curves), FALLBACK_POINTS)
    grid = np.linspace(low, high, max(points, 2))
    if len(grid) > most > 1:
        grid = grid[_spread_over(len(grid), most)]
    return grid, np.array([_within(curve, grid, np.interp(grid, *curve), vary_len) for curve in curves])


def _up_to(ys: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    return ys[:length] if len(ys) >= length else np.append(ys, np.full(length - len(ys), np.nan))


def _within(
    curve: Curve, grid: NDArray[np.float64], values: NDArray[np.float64], vary_len: bool
) -> NDArray[np.float64]:
    if not vary_len:
        return values
    return np.where((grid >= curve[0][0]) & (grid <= curve[0][-1]), values, np.nan)


def curve_band(values: NDArray[np.float64], band: str, *, seed: int = 0, repetitions: int = 500) -> _Band:
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
    there = ~np.isnan(values)
    if there.all():
        return np.asarray(counts @ values / counts.sum(axis=1, keepdims=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((counts @ np.where(there, values, 0.0)) / (counts @ there.astype(np.float64)))


def _quartile_means(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `_means`, of the middle half of what was drawn; a quarter, rounded down, is cut at each end."""
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


def _spread(values: NDArray[np.float64], band: str) -> _Band:
    centre, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    if band == "stderr":
        spread = spread / np.sqrt(np.maximum(np.sum(~np.isnan(values), axis=0), 1))
    if band == "none":
        return centre, centre, centre
    return centre, centre - spread, centre + spread


def _range(values: NDArray[np.float64], _: str) -> _Band:
    return np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)


def _quartiles(values: NDArray[np.float64], _: str) -> _Band:
    low, centre, high = _percentiles(values, [25, 50, 75])
    return centre, low, high
