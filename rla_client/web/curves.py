"""Downsampled curves of a panel.

All curves of a panel share one x. Where their points, taken together, are few enough, these are exactly the
points. Else x is cut into as many buckets as the panel has pixels, and each curve goes through the least and
the largest value of each bucket; none is left out by chance. A panel that is zoomed asks again for its part.
Many curves share MOST_BUCKETS: where hundreds lie over each other, buckets of some pixels look the same.
NaN and infinite values are not points: they go beside the curve as *marks* (x and which), at most one of a
kind a bucket, with their number.

Behind smoothed curves of few runs stand these points too: as many series again, after those of all curves
(`raw` in the head).

With `group`, runs become one curve and a band a group: by `plot.bands`, as `rla plot` draws them, at as many
steps as fit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.responses import Response

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.database.clock import clock
from rla_client.database.compare.group_key import group_label, group_order, group_text
from rla_client.database.compare.groups import of_one_length
from rla_client.database.curves.band_kinds import BAND_NAMES, band_kind
from rla_client.database.curves.progress_csv import recorded_nan
from rla_client.database.curves.rank_tables import (
    OF_RANKS,
    Ranks,
    RankShare,
    merges_ranks,
    parse_ranks,
    rank_notes,
    rank_share,
)
from rla_client.database.filter.name_completion import full_names
from rla_client.database.records.row_view import RowView
from rla_client.plot.bands import curve_band
from rla_client.plot.smoothing import group_curves, sorted_curve
from rla_client.plot.smoothing import smooth as smoothed
from rla_client.web.curve_answer import encode
from rla_client.web.curve_columns import ELAPSED, ROW, read_entries, x_values
from rla_client.web.request_arguments import asked_names, asked_range, number
from rla_client.web.run_registry import PageRun, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Array = NDArray[np.float64]
WIDTH = (16, 4096)  # pixels of a panel
MAX_RUNS = 20_000  # of one panel
MAX_POINTS = 16_000_000  # of one panel: 128 MB, and as much again where no two runs share their x
MOST_BUCKETS, LEAST_BUCKETS = 75_000, 200  # of all curves of a panel; of each one all the same
BATCH = 100  # runs that are read at a time
MAX_GROUPS = 500
MAX_TOLD = 2  # groups of which it is said that their runs end apart
BAND_POINTS = 256  # steps at which a band is computed
IQM_RUNS, IQM_POINTS = 400, 64  # its bootstrap sorts: beyond so many runs it takes seconds at more steps
AHEAD_S = 5.0
MAX_MARKS = 200  # of one curve
RAW_RUNS = 50  # up to which the values as they were recorded stand behind smoothed curves
Ends = tuple[float, float, bool]  # of x, and whether it is logarithmic


def curves(site: Site, asked: dict[str, Any]) -> Response:
    """The curves of a panel; see the module's text.

    Args:
        site: whose runs.
        asked: `runs` (numbers), `metric`, and where wanted `x` (a column, `elapsed` or `row`), `width`
            (pixels), `range` ([low, high] of x), `log` (whether x is logarithmic), `smooth` (points), `group`
            (names; none: all runs are one) and `band`; `ranks` (see `parse_ranks`).

    Raises:
        ArgumentError: something of that is not as it should be.
    """
    site.read_ahead.wait(AHEAD_S)  # or the same files would be read twice
    begun = time.perf_counter()
    metric, x = str(asked.get("metric")), str(asked.get("x") or TIME_STEP)
    entries = site.chosen(asked.get("runs"))[:MAX_RUNS]
    ranks = asked_ranks(asked)
    found, total = [], 0
    for curve in read(site, entries, x, metric, ranks):
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
        head, xs, series = _single(parts, (low, high, log), width, smooth)
    else:
        head, xs, series = _grouped(entries, parts, asked, min(width, BAND_POINTS), smooth)
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
    return answer(head, xs, series)


def answer(head: dict[str, Any], xs: Array, series: Sequence[Array]) -> Response:
    """What `encode` makes, for the page."""
    return Response(encode(head, xs, series), media_type="application/octet-stream")


@dataclass(slots=True)
class Curve:
    """The points of one run."""

    entry: PageRun
    xs: Array  # ascending, shape (points,)
    ys: Array  # finite, shape (points,)
    odd: Array  # x and value of those that are not finite, shape (2, count)
    rows: int | None  # of its table; None where those of earlier items, or of several ranks, are among them
    share: RankShare | None = None  # of a mean of ranks: how many are in it


def asked_ranks(asked: dict[str, Any]) -> Ranks | None:
    """Which ranks of the runs a page asks for; ArgumentError: it is none of `parse_ranks`."""
    return parse_ranks(str(asked.get("ranks") or "") or None)


def read(
    site: Site, entries: Sequence[PageRun], x: str, metric: str, ranks: Ranks | None = None
) -> Iterator[Curve]:
    """The curves of those runs that have the metric and x, in their order.

    Curves that have the same x share it, so that a sweep of a thousand runs takes half the memory.
    """
    columns = {ELAPSED: [TIMESTAMP], ROW: []}.get(x, [x])
    known: dict[tuple[int, float, float], Array] = {}
    for start in range(0, len(entries), BATCH):
        batch = entries[start : start + BATCH]
        counts = [f"{metric}{OF_RANKS}", OF_RANKS] if ranks == "mean" else []
        tables = read_entries(site, batch, [*columns, metric, *counts], ranks)
        for entry, table in zip(batch, tables, strict=True):
            ys = table.get(metric)
            xs = None if ys is None else x_values(table, x, len(ys))
            if ys is None or xs is None or not len(xs):
                continue
            curve = _curve(entry, xs, ys)
            if curve is not None:
                if merges_ranks(ranks):
                    curve.rows = None
                if counts and counts[0] in table:
                    curve.share = rank_share(*(table[name] for name in counts))
                key = (len(curve.xs), *curve.xs[[0, -1]].tolist()) if len(curve.xs) else (0, 0.0, 0.0)
                same = known.setdefault(key, curve.xs)
                if np.array_equal(same, curve.xs):
                    curve.xs = same
                yield curve


def _curve(entry: PageRun, xs: Array, ys: Array) -> Curve | None:
    keep = np.isfinite(xs) & (~np.isnan(ys) | recorded_nan(ys))
    if not keep.any():
        return None
    rows = None if entry.record.parent else len(ys)
    finite = keep & np.isfinite(ys)
    odd = np.array([xs[keep & ~finite], ys[keep & ~finite]])
    if not finite.all():
        xs, ys = xs[finite], ys[finite]
    if len(xs) > 1 and not np.all(np.diff(xs) >= 0):
        order = np.argsort(xs, kind="stable")
        xs, ys = xs[order], ys[order]
    return Curve(entry, xs, ys, odd, rows)


def extremes(site: Site, entries: Sequence[PageRun], metric: str) -> list[tuple[float, float] | None]:
    """Least and largest finite value of a metric in each of some runs; None where it has none."""
    found: list[tuple[float, float] | None] = []
    for table in read_entries(site, entries, [metric]):
        ys = table.get(metric, np.empty(0))
        ys = ys[np.isfinite(ys)]
        found.append((float(ys.min()), float(ys.max())) if ys.size else None)
    return found


def _ends(found: Sequence[Curve], *, log: bool) -> tuple[float, float]:
    """From where to where the points go."""
    lows, highs = [], []
    for curve in found:
        xs = np.concatenate([curve.xs, curve.odd[0]]) if curve.odd.size else curve.xs
        xs = xs[xs > 0] if log else xs
        if xs.size:
            lows.append(float(xs.min()))
            highs.append(float(xs.max()))
    return (min(lows), max(highs)) if lows else (0.0, 1.0)


def _cut(curve: Curve, low: float, high: float) -> Curve:
    """The points inside a range, and one on each side of it, so that the line continues to the edge."""
    first = max(int(np.searchsorted(curve.xs, low, "left")) - 1, 0)
    last = int(np.searchsorted(curve.xs, high, "right")) + 1
    if first == 0 and last > len(curve.xs) and not curve.odd.size:
        return curve
    odd = curve.odd[:, (curve.odd[0] >= low) & (curve.odd[0] <= high)]
    return Curve(curve.entry, curve.xs[first:last], curve.ys[first:last], odd, curve.rows)


def _single(
    parts: Sequence[Curve], ends: Ends, width: int, smooth: float
) -> tuple[dict[str, Any], Array, list[Array]]:
    """One series a run."""
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
        "curves": [{"number": curve.entry.number, **_marks(curve, ends, width)} for curve in parts],
    }
    return head, xs, series


def _thinned(parts: Sequence[Curve], ends: Ends, width: int) -> tuple[str, Array, list[Array]]:
    """The points as they are where they are few (`exact`), else the extremes of `buckets`."""
    xs = _shared(parts, 2 * width)
    if xs is not None:
        return "exact", xs, [_on(xs, curve) for curve in parts]
    edges = _edges(*ends, min(width, max(LEAST_BUCKETS, MOST_BUCKETS // max(len(parts), 1))))
    xs = np.sort(np.concatenate([edges[:-1] * 0.75 + edges[1:] * 0.25, edges[:-1] * 0.25 + edges[1:] * 0.75]))
    known: dict[int, _Places] = {}  # by the x that curves share
    return "buckets", xs, [_buckets(curve, _places(curve.xs, edges, known), len(xs)) for curve in parts]


def _spread(xs: Array, series: Array, wider: Array) -> Array:
    """A series at more x, NaN at those that it has not."""
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
        return None  # of several values at one x the least and the largest are shown
    if all(np.array_equal(curve.xs, longest[: len(curve.xs)]) for curve in parts):
        xs = longest
    elif sum(len(curve.xs) for curve in parts) <= most * 64:  # ever so many would take long to sort
        xs = np.concatenate([curve.xs for curve in parts])
    else:
        return None
    xs = _with_marks(np.unique(xs), parts)
    return xs if len(xs) <= most else None


def _with_marks(xs: Array, parts: Sequence[Curve]) -> Array:
    """Ascending x, and where marks lie beyond them the outermost of these: the axis goes as far."""
    ends = [end(curve.odd[0]) for curve in parts if curve.odd.size for end in (np.min, np.max)]
    return np.unique(np.append(xs, [x for x in ends if not xs.size or not xs[0] <= x <= xs[-1]]))


def _on(xs: Array, curve: Curve) -> Array:
    """Values of a curve at the x of all."""
    series = np.full(len(xs), np.nan)
    series[np.searchsorted(xs, curve.xs)] = curve.ys
    return series


def _edges(low: float, high: float, log: bool, width: int) -> Array:
    if high <= low:
        low, high = low - 0.5, high + 0.5
    if log and low > 0:
        edges = np.exp(np.linspace(math.log(low), math.log(high), width + 1))
    else:
        edges = np.linspace(low, high, width + 1)
    return np.asarray(edges)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the points of a curve lie.

    Attributes:
        xs: of the points.
        starts: the first point of each bucket that has one.
        buckets: which buckets these are.
    """

    xs: Array
    starts: NDArray[np.intp]
    buckets: NDArray[np.intp]


def _places(xs: Array, edges: Array, known: dict[int, _Places]) -> _Places:
    found = known.get(id(xs))  # which is alive, for the places have it
    if found is None:
        inside = np.clip(np.searchsorted(edges, xs, "right") - 1, 0, len(edges) - 2)
        starts = np.flatnonzero(np.diff(inside, prepend=-1))
        found = known[id(xs)] = _Places(xs, starts, inside[starts])
    return found


def _buckets(curve: Curve, places: _Places, points: int) -> Array:
    """Least and largest value of each bucket, the one that comes first first; shape (points,)."""
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


def _marks(curve: Curve, ends: Ends, width: int) -> dict[str, Any]:
    xs, values = curve.odd
    if not xs.size:
        return {}
    places = np.searchsorted(_edges(*ends, width), xs)
    kinds = np.where(np.isnan(values), 0, np.sign(values))
    _, first = np.unique(places * 4 + kinds, return_index=True)
    first.sort()
    evenly = np.linspace(0, len(first) - 1, min(len(first), MAX_MARKS)).astype(int)  # the last among them
    names = {0: "nan", 1: "inf", -1: "-inf"}
    counts = {name: int(np.sum(kinds == kind)) for kind, name in names.items()}
    return {
        "odd": {name: count for name, count in counts.items() if count},
        "marks": [[float(xs[at]), names[int(kinds[at])]] for at in first[evenly]],
    }


def _grouped(
    entries: Sequence[PageRun], parts: Sequence[Curve], asked: dict[str, Any], points: int, smooth: float
) -> tuple[dict[str, Any], Array, list[Array]]:
    """Centre, low and high of each group."""
    band = band_kind(str(asked.get("band") or "ci"))
    if band == "iqm" and len(parts) > IQM_RUNS:
        points = min(points, IQM_POINTS)
    groups = _by_values(entries, parts, asked["group"])
    made = []
    for label, members in groups.items():
        found = [(curve.xs, curve.ys) for curve in members if len(curve.xs)]
        if found:
            xs, values = group_curves(found, points, smooth)
            made.append((label, members, xs, curve_band(values, band)))
    grid = _grid([xs for _, _, xs, _ in made], points)
    series = [
        np.interp(grid, xs, one, left=np.nan, right=np.nan)
        if len(grid) != len(xs) or (grid != xs).any()
        else one
        for _, _, xs, bands in made
        for one in bands
    ]
    told: list[dict[str, Any]] = []
    uneven = []
    for label, members, _, _ in made:
        ends = [float(curve.xs[-1]) for curve in members if len(curve.xs)]
        if not of_one_length(ends):
            uneven.append((label, min(ends), max(ends)))
        told.append({"label": label, "numbers": [curve.entry.number for curve in members]})
        if odd := sum(curve.odd.shape[1] for curve in members):
            told[-1]["odd"] = {"nan or inf": odd}
    said = BAND_NAMES.get(band, "mean") + (" of smoothed runs" if smooth > 0 else "")
    if uneven:
        low, high = min(low for _, low, _ in uneven), max(high for *_, high in uneven)
        names = ", ".join(label for label, *_ in uneven[:MAX_TOLD])
        more = f" and {len(uneven) - MAX_TOLD} more" if len(uneven) > MAX_TOLD else ""
        said += f"; the mean may jump where runs end, from {low:.6g} to {high:.6g}: {names}{more}"
    return {"kind": "bands", "band": band, "curves": told, "said": said}, grid, series


def _grid(all_xs: Sequence[Array], points: int) -> Array:
    if not all_xs:
        return np.empty(0)
    longest = max(all_xs, key=len)
    if all(np.array_equal(xs, longest) for xs in all_xs):
        return longest
    union = np.unique(np.concatenate(all_xs))
    if len(union) <= 16 * points:
        return union
    return np.linspace(union[0], union[-1], 4 * points)


def _by_values(entries: Sequence[PageRun], parts: Sequence[Curve], by: object) -> dict[str, list[Curve]]:
    """Label → its curves, oldest first as `rla plot` has them; in the order of the values, numbers first.

    The order within a group is not that of the question: a bootstrap depends on it, and the list of runs may
    be sorted in any way.

    Raises:
        UnknownNameError: no run asked for has one of the names. ArgumentError: too many groups.
    """
    by, now = asked_names(by, "group"), clock()
    full = full_names(set(by), [entry.record for entry in entries])
    found: dict[tuple[str, ...], list[Curve]] = {}
    for curve in sorted(parts, key=lambda one: (one.entry.record.opened, one.entry.record.index)):
        view = RowView(curve.entry.record, now)
        found.setdefault(tuple(group_text(view.get(full[name])) for name in by), []).append(curve)
    if len(found) > MAX_GROUPS:
        raise ArgumentError(f"{len(found)} groups, more than the {MAX_GROUPS} that a panel can show")
    ordered = sorted(found, key=lambda texts: list(map(group_order, texts)))
    return {group_label(by, texts) or "all": found[texts] for texts in ordered}
