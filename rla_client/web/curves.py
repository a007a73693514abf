"""The curves of a panel.

All curves of a panel share one x: the recorded points where these are few, else points of buckets
(`downsampling`). A panel that is zoomed asks again for its part. With `group`, the runs of a group become one
curve and a band (`group_bands`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.responses import Response

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import TIME_STEP
from rla_client.database.curves.rank_tables import (
    rank_notes,
)
from rla_client.web.curve_answer import curve_response
from rla_client.web.curve_points import MAX_RUNS, Curve, read_curves
from rla_client.web.downsampling import single_curves
from rla_client.web.group_bands import BAND_POINTS, group_bands
from rla_client.web.request_arguments import asked_range, asked_ranks, number
from rla_client.web.run_registry import Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

WIDTH = (16, 4096)  # pixels of a panel
MAX_POINTS = 16_000_000  # of one panel: 128 MB, twice that where no two runs share their x
AHEAD_S = 5.0


def curves(site: Site, asked: dict[str, Any]) -> Response:
    """The curves of a panel as `curve_answer` describes.

    Args:
        site: the page's databases.
        asked: `runs` (numbers) and `metric`; optional are `x` (a column, `elapsed` or `row`), `width`
            (pixels), `range` ([low, high] of x), `log` (whether x is logarithmic), `smooth` (points), `group`
            (names; an empty list makes all runs one group), `band`, and `ranks` (see `parse_ranks`).

    Raises:
        ArgumentError: an argument is invalid, or the runs have more than `MAX_POINTS`.
    """
    site.read_ahead.wait(AHEAD_S)  # otherwise the same files would be read twice
    begun = time.perf_counter()
    metric, x = str(asked.get("metric")), str(asked.get("x") or TIME_STEP)
    entries = site.chosen(asked.get("runs"))[:MAX_RUNS]
    ranks = asked_ranks(asked)
    found, total = [], 0
    for curve in read_curves(site, entries, x, metric, ranks):
        total += len(curve.xs)
        if total > MAX_POINTS:
            most = MAX_POINTS // 1_000_000
            raise ArgumentError(f"more than {most} million points: choose fewer runs for {metric!r}")
        found.append(curve)
    width = min(max(int(number(asked, "width", 400)), WIDTH[0]), WIDTH[1])
    log = bool(asked.get("log"))
    whole = _ends(found, log=log)
    low, high = asked_range(asked.get("range"), whole)
    smooth = number(asked, "smooth", 0.0)
    parts = [_cut(curve, low, high) for curve in found]
    if asked.get("group") is None:
        head, xs, series = single_curves(parts, (low, high, log), width, smooth)
    else:
        head, xs, series = group_bands(entries, parts, asked, min(width, BAND_POINTS), smooth)
    shares = [curve.share for curve in found if curve.share is not None]
    notes = rank_notes(ranks, {metric: sum(shares[1:], shares[0])} if shares else {})
    head |= {
        **({"said": "; ".join([*([head["said"]] if "said" in head else []), *notes])} if notes else {}),
        "metric": metric,
        "x": x,
        "boot": site.boot,
        "range": [low, high],
        "whole": list(whole),
        "lacking": len(entries) - len(found),
        "cursors": {str(curve.entry.number): curve.rows for curve in found},
        "cost": time.perf_counter() - begun,
    }
    return curve_response(head, xs, series)


def _ends(found: Sequence[Curve], *, log: bool) -> tuple[float, float]:
    """The lowest and the highest x of the points; of a logarithmic axis, of those above 0."""
    lows, highs = [], []
    for curve in found:
        xs = np.concatenate([curve.xs, curve.odd[0]]) if curve.odd.size else curve.xs
        xs = xs[xs > 0] if log else xs
        if xs.size:
            lows.append(float(xs.min()))
            highs.append(float(xs.max()))
    return (min(lows), max(highs)) if lows else (0.0, 1.0)


def _cut(curve: Curve, low: float, high: float) -> Curve:
    """The points inside a range, and one on each side of it, so that the line reaches the edge."""
    first = max(int(np.searchsorted(curve.xs, low, "left")) - 1, 0)
    last = int(np.searchsorted(curve.xs, high, "right")) + 1
    if first == 0 and last > len(curve.xs) and not curve.odd.size:
        return curve
    odd = curve.odd[:, (curve.odd[0] >= low) & (curve.odd[0] <= high)]
    return Curve(curve.entry, curve.xs[first:last], curve.ys[first:last], odd, curve.rows)
