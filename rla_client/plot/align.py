"""Putting the curves of several runs on one x axis. Pure.

A curve is a pair of float arrays (x ascending, y), shape (points,) each. `resample` of RLA is a
symmetric exponential moving average on an even grid: each grid point takes the mean of all
points, weighted by exp(-distance / (smooth_step grid steps)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Curve = tuple[NDArray[np.float64], NDArray[np.float64]]

FALLBACK_POINTS = 512  # grid for runs that logged at different time-steps


def sorted_curve(curve: Curve) -> Curve:
    """Ascending x; of points with the same x the last one stays."""
    import numpy as np

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
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weight > 0, total / weight, np.interp(grid, xs, ys))


def _decayed(
    xs: NDArray[np.float64], ys: NDArray[np.float64], grid: NDArray[np.float64], period: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each grid point the decayed sums of y and of 1 over the points up to it."""
    import numpy as np

    cell = np.searchsorted(grid, xs, side="left")
    inside = cell < len(grid)
    weights = np.exp(-(grid[cell[inside]] - xs[inside]) / period)
    sums = np.bincount(cell[inside], weights * ys[inside], len(grid)).astype(np.float64)
    counts = np.bincount(cell[inside], weights, len(grid)).astype(np.float64)
    fade = np.exp(-np.diff(grid) / period)
    for place in range(1, len(grid)):
        sums[place] += sums[place - 1] * fade[place - 1]
        counts[place] += counts[place - 1] * fade[place - 1]
    return sums, counts


def align(
    curves: Sequence[Curve], *, resample: int = 0, smooth_step: float = 1.0, vary_len: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Curves on one axis.

    Args:
        curves: at least one, none of them empty.
        resample: points of an even grid over the common range; 0 keeps the points as they are.
        smooth_step: see `smooth`.
        vary_len: go on to the end of the longest curve; shorter ones are NaN there.

    Returns:
        (x of shape (points,), y of shape (curves, points)). Without `resample` curves that were
        logged at the same x keep it; others are interpolated linearly to a grid.
    """
    import numpy as np

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
        rows = [np.append(ys[:length], np.full(max(length - len(ys), 0), np.nan)) for _, ys in curves]
        return longest[:length], np.array(rows)
    points = min(max(len(curve[0]) for curve in curves), FALLBACK_POINTS)
    grid = np.linspace(low, high, max(points, 2))
    return grid, np.array([_within(curve, grid, np.interp(grid, *curve), vary_len) for curve in curves])


def _within(
    curve: Curve, grid: NDArray[np.float64], values: NDArray[np.float64], vary_len: bool
) -> NDArray[np.float64]:
    import numpy as np

    if not vary_len:
        return values
    return np.where((grid >= curve[0][0]) & (grid <= curve[0][-1]), values, np.nan)
