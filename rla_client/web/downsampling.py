"""Downsampling of curves to the pixels of a panel.

Where the points of all curves, taken together, are few enough, they are answered as they are. Else x is cut
into as many buckets as the panel has pixels, and each curve goes through the least and the largest value of
each bucket, so that no extreme is lost. Many curves share MOST_BUCKETS: where hundreds lie over each other,
buckets of some pixels look the same.

For few runs, the recorded points are drawn behind smoothed curves: the answer then has a second series for
each curve, after all smoothed ones (`raw` in the head).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.plot.smoothing import smooth as smoothed
from rla_client.plot.smoothing import sorted_curve
from rla_client.web.curve_marks import Ends, bucket_edges, curve_marks
from rla_client.web.curve_points import Curve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MOST_BUCKETS, LEAST_BUCKETS = 75_000, 200  # of all curves of a panel together; of one curve
RAW_RUNS = 50  # the most runs whose recorded values are drawn behind their smoothed curves


def single_curves(
    parts: Sequence[Curve], ends: Ends, width: int, smooth: float
) -> tuple[dict[str, Any], Array, list[Array]]:
    """Head of the answer, shared x, one series for each run; with `raw`, a second one behind it."""
    raw = smooth > 0 and len(parts) <= RAW_RUNS
    kind, xs, series = _thinned(
        [_smoothed(curve, width, smooth) for curve in parts] if smooth > 0 else parts, ends, width
    )
    if raw:
        _, raw_xs, behind = _thinned(parts, ends, width)
        both = np.union1d(xs, raw_xs)
        series = [_spread(xs, one, both) for one in series] + [_spread(raw_xs, one, both) for one in behind]
        xs = both
    head = {
        "kind": kind,
        "raw": raw,
        "curves": [{"number": curve.entry.number, **curve_marks(curve, ends, width)} for curve in parts],
    }
    return head, xs, series


def _thinned(parts: Sequence[Curve], ends: Ends, width: int) -> tuple[str, Array, list[Array]]:
    """The recorded points where they are few (`exact`), else the extremes of `buckets`."""
    xs = _shared(parts, 2 * width)
    if xs is not None:
        return "exact", xs, [_on(xs, curve) for curve in parts]
    edges = bucket_edges(*ends, min(width, max(LEAST_BUCKETS, MOST_BUCKETS // max(len(parts), 1))))
    xs = np.sort(np.concatenate([edges[:-1] * 0.75 + edges[1:] * 0.25, edges[:-1] * 0.25 + edges[1:] * 0.75]))
    known: dict[int, _Places] = {}  # by the x that curves share
    return "buckets", xs, [_buckets(curve, _places(curve.xs, edges, known), len(xs)) for curve in parts]


def _spread(xs: Array, series: Array, wider: Array) -> Array:
    """A series over a wider x, NaN where it has no point."""
    found = np.full(len(wider), np.nan)
    found[np.searchsorted(wider, xs)] = series
    return found


def _smoothed(curve: Curve, width: int, smooth: float) -> Curve:
    xs, ys = sorted_curve((curve.xs, curve.ys))
    if len(xs) < 2:  # noqa: PLR2004 - nothing to smooth
        return curve
    grid = np.linspace(xs[0], xs[-1], max(min(width, len(xs)), 2))
    return Curve(curve.entry, grid, smoothed((xs, ys), grid, smooth), curve.odd, curve.rows)


def _shared(parts: Sequence[Curve], most: int) -> Array | None:
    """The x of all points of all curves; None where these are more than `most`."""
    if not parts:
        return np.empty(0)
    longest = max((curve.xs for curve in parts), key=len)
    if len(longest) > most or any((np.diff(curve.xs) == 0).any() for curve in parts):
        return None  # of several values at one x, the buckets show the least and the largest
    if all(np.array_equal(curve.xs, longest[: len(curve.xs)]) for curve in parts):
        xs = longest
    elif sum(len(curve.xs) for curve in parts) <= most * 64:  # sorting more would take long
        xs = np.concatenate([curve.xs for curve in parts])
    else:
        return None
    xs = _with_marks(np.unique(xs), parts)
    return xs if len(xs) <= most else None


def _with_marks(xs: Array, parts: Sequence[Curve]) -> Array:
    """Ascending x, extended to the outermost marks, so that the axis covers them."""
    ends = [end(curve.odd[0]) for curve in parts if curve.odd.size for end in (np.min, np.max)]
    return np.unique(np.append(xs, [x for x in ends if not xs.size or not xs[0] <= x <= xs[-1]]))


def _on(xs: Array, curve: Curve) -> Array:
    """Values of a curve at the shared x, NaN where it has no point."""
    series = np.full(len(xs), np.nan)
    series[np.searchsorted(xs, curve.xs)] = curve.ys
    return series


@dataclass(frozen=True, slots=True)
class _Places:
    """The buckets that the points of a curve fall into.

    Attributes:
        xs: of the points.
        starts: place of the first point of each bucket that is not empty.
        buckets: numbers of these buckets.
    """

    xs: Array
    starts: NDArray[np.intp]
    buckets: NDArray[np.intp]


def _places(xs: Array, edges: Array, known: dict[int, _Places]) -> _Places:
    found = known.get(id(xs))  # the id stays valid, as the value refers to xs
    if found is None:
        inside = np.clip(np.searchsorted(edges, xs, "right") - 1, 0, len(edges) - 2)
        starts = np.flatnonzero(np.diff(inside, prepend=-1))
        found = known[id(xs)] = _Places(xs, starts, inside[starts])
    return found


def _buckets(curve: Curve, places: _Places, points: int) -> Array:
    """Least and largest value of each bucket, in the order of their x; shape (points,)."""
    series = np.full(points, np.nan)
    starts, at = places.starts, places.buckets
    if not starts.size:
        return series
    lows = np.minimum.reduceat(curve.ys, starts)
    highs = np.maximum.reduceat(curve.ys, starts)
    falls = curve.ys[np.append(starts[1:], len(curve.ys)) - 1] < curve.ys[starts]
    series[2 * at] = np.where(falls, highs, lows)
    series[2 * at + 1] = np.where(falls, lows, highs)
    return series
