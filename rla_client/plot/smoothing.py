"""Smoothing of curves on one x axis.

A curve is a pair of float arrays (x ascending, y), shape (points,) each. `resample` of RLA is a symmetric
exponential moving average on an even grid: the value at a grid point is the mean of all points, weighted by
exp(-distance / (smooth_step grid steps)).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
FALLBACK_POINTS = 512  # grid for runs that logged at different time-steps
MAX_DECAYS = 300.0  # exp of it, times a value, does not overflow


def group_curves(found: Sequence[Curve], points: int, smooth: float = 0.0) -> Curve:
    """Curves of one group on one x axis, for `bands.curve_band`.

    Args:
        found: at least one, none of them empty.
        points: largest number of points on the x axis.
        smooth: decay length of a moving average in points; 0: no smoothing.

    Returns:
        (x of shape (points,), y of shape (curves, points), NaN after the end of a curve).
    """
    longest = max(len(curve[0]) for curve in found)  # a finer grid has no use
    grid = min(points, longest) if smooth > 0 else 0
    return align(found, resample=grid, smooth_step=smooth or 1.0, vary_len=True, most=points)


def _spread_over(count: int, points: int) -> NDArray[np.int_]:
    """Indices of `points` entries spread evenly over `count`, including both ends."""
    places: NDArray[np.int_] = np.linspace(0, count - 1, points).round().astype(int)
    return places


def sorted_curve(curve: Curve) -> Curve:
    """The curve in ascending x; of points with equal x the last one is kept."""
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
        curve: curve with ascending x.
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
    """Decayed sums of y, and of 1, over the points up to each grid point."""
    cell = np.searchsorted(grid, xs, side="left")
    inside = cell < len(grid)
    weights = np.exp(-(grid[cell[inside]] - xs[inside]) / period)
    sums = np.bincount(cell[inside], weights * ys[inside], len(grid)).astype(np.float64)
    counts = np.bincount(cell[inside], weights, len(grid)).astype(np.float64)
    ages = (grid - grid[0]) / period
    return _faded(sums, ages), _faded(counts, ages)


def _faded(sums: NDArray[np.float64], ages: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cumulative sums that decay by exp(-age).

    They are computed in blocks, within which the weights do not overflow.
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
        most: without `resample`, largest number of points; fewer than two: no limit.

    Returns:
        (x of shape (points,), y of shape (curves, points)). Without `resample` curves with equal x keep
        it; others are interpolated linearly to a grid.
    """
    curves = [sorted_curve(curve) for curve in curves]
    ends = [curve[0][-1] for curve in curves]
    low = max(curve[0][0] for curve in curves) if not vary_len else min(curve[0][0] for curve in curves)
    high = max(ends) if vary_len else min(ends)
    if high <= low:  # the ranges do not overlap: keep both
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
