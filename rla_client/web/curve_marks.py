"""Marks of values that are not finite.

NaN and infinite values are not points of a curve. They are answered beside it as *marks* (x and kind), at
most one of each kind in a bucket, with their count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.web.curve_points import Curve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MAX_MARKS = 200  # of one curve
Ends = tuple[float, float, bool]  # lowest x, highest x, whether the axis is logarithmic


def bucket_edges(low: float, high: float, log: bool, width: int) -> Array:
    """Edges of `width` buckets from low to high, shape (width + 1,)."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    if log and low > 0:
        edges = np.exp(np.linspace(math.log(low), math.log(high), width + 1))
    else:
        edges = np.linspace(low, high, width + 1)
    return np.asarray(edges)


def curve_marks(curve: Curve, ends: Ends, width: int) -> dict[str, Any]:
    """The `marks` of a curve, and how many values of each kind it has (`odd`); empty where it has none."""
    xs, values = curve.odd
    if not xs.size:
        return {}
    places = np.searchsorted(bucket_edges(*ends, width), xs)
    kinds = np.where(np.isnan(values), 0, np.sign(values))
    _, first = np.unique(places * 4 + kinds, return_index=True)
    first.sort()
    evenly = np.linspace(0, len(first) - 1, min(len(first), MAX_MARKS)).astype(int)  # includes the last
    names = {0: "nan", 1: "inf", -1: "-inf"}
    counts = {name: int(np.sum(kinds == kind)) for kind, name in names.items()}
    return {
        "odd": {name: count for name, count in counts.items() if count},
        "marks": [[float(xs[at]), names[int(kinds[at])]] for at in first[evenly]],
    }
