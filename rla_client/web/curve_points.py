"""Recorded points of runs' curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rla_client.contract.layout import TIMESTAMP
from rla_client.database.curves.progress_csv import recorded_nan
from rla_client.database.curves.rank_tables import (
    OF_RANKS,
    Ranks,
    RankShare,
    merges_ranks,
    rank_share,
)
from rla_client.web.curve_columns import ELAPSED, ROW, read_entries, x_values
from rla_client.web.run_registry import PageRun, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


MAX_RUNS = 20_000  # of one panel
BATCH = 100  # runs that are read at a time


@dataclass(slots=True)
class Curve:
    """The points of one run."""

    entry: PageRun
    xs: Array  # ascending, shape (points,)
    ys: Array  # finite, shape (points,)
    odd: Array  # x and value of the points that are not finite, shape (2, count)
    rows: int | None  # of its table; None where rows of earlier items or of several ranks are merged
    share: RankShare | None = None  # of a mean over ranks: how many ranks each point covers


def read_curves(
    site: Site, entries: Sequence[PageRun], x: str, metric: str, ranks: Ranks | None = None
) -> Iterator[Curve]:
    """The curves of the runs that have the metric and x, in the order of the runs.

    Curves with equal x share one array, which halves the memory of a sweep.
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
    """(least, largest) finite value of a metric in each run; None for a run without one."""
    found: list[tuple[float, float] | None] = []
    for table in read_entries(site, entries, [metric]):
        ys = table.get(metric, np.empty(0))
        ys = ys[np.isfinite(ys)]
        found.append((float(ys.min()), float(ys.max())) if ys.size else None)
    return found
