"""Bands of groups of curves.

The runs of a group become one curve and a band, computed by `plot.bands` as `rla plot` draws them, at as many
steps as fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.compare.group_key import group_label, group_order, group_text
from rla_client.database.compare.groups import of_one_length
from rla_client.database.curves.band_kinds import BAND_NAMES, band_kind
from rla_client.database.filter.name_completion import full_names
from rla_client.database.records.row_view import RowView
from rla_client.plot.bands import curve_band
from rla_client.plot.smoothing import group_curves
from rla_client.web.curve_points import Curve
from rla_client.web.request_arguments import asked_names
from rla_client.web.run_registry import PageRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MAX_GROUPS = 500
MAX_NAMED = 2  # groups that are named because their runs end at different steps
BAND_POINTS = 256  # steps at which a band is computed
IQM_RUNS, IQM_POINTS = 400, 64  # for more runs, the bootstrap of the IQM takes seconds at more steps


def group_bands(
    entries: Sequence[PageRun], parts: Sequence[Curve], asked: dict[str, Any], points: int, smooth: float
) -> tuple[dict[str, Any], Array, list[Array]]:
    """Head of the answer, shared x, and three series (centre, low, high) for each group."""
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
    shown: list[dict[str, Any]] = []
    uneven = []
    for label, members, _, _ in made:
        ends = [float(curve.xs[-1]) for curve in members if len(curve.xs)]
        if not of_one_length(ends):
            uneven.append((label, min(ends), max(ends)))
        shown.append({"label": label, "numbers": [curve.entry.number for curve in members]})
        if odd := sum(curve.odd.shape[1] for curve in members):
            shown[-1]["odd"] = {"nan or inf": odd}
    said = BAND_NAMES.get(band, "mean") + (" of smoothed runs" if smooth > 0 else "")
    if uneven:
        low, high = min(low for _, low, _ in uneven), max(high for *_, high in uneven)
        names = ", ".join(label for label, *_ in uneven[:MAX_NAMED])
        more = f" and {len(uneven) - MAX_NAMED} more" if len(uneven) > MAX_NAMED else ""
        said += f"; the mean may jump where runs end, from {low:.6g} to {high:.6g}: {names}{more}"
    return {"kind": "bands", "band": band, "curves": shown, "said": said}, grid, series


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
    """Label → curves of the group; groups in the order of their values, numbers first.

    Within a group curves are sorted by age, as in `rla plot`, not as in the request: a bootstrap depends on
    the order, and the list of runs may be sorted in any way.

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
