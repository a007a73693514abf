"""Heat maps of a run's histograms over time-steps.

Histograms of one name (`<time-step>-NAME.histogram.json`) share common bins. The count of a bin is spread
evenly over its width, so that histograms with different edges can be compared.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import OTHER_RESULTS
from rla_client.database.results_by_name import Group, grouped
from rla_client.web.item_files import item_file, list_files
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import PageRun, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
SUFFIX = ".histogram.json"
MAX_NAMES = 24
MAX_STEPS = 120  # of one name, evenly spread
MAX_FILE_BYTES = 64 << 10
MAX_EDGES = 1025
BINS = 48


def histograms(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The histograms of a run.

    Returns:
        `names` (the number of names) and `found`: {name, low, high (of all bins), steps, shares (for each
        step, the share of its values in each of `BINS` bins)}.
    """
    entry = asked_run(site, asked)
    paths = [one.path for one in list_files(site, entry, OTHER_RESULTS).files if one.path.endswith(SUFFIX)]
    groups = grouped(paths)
    found = [_over_time(site, entry, name, groups[name]) for name in sorted(groups)[:MAX_NAMES]]
    return {"names": len(groups), "found": [one for one in found if one is not None]}


def _over_time(site: Site, entry: PageRun, name: str, group: Group) -> dict[str, Any] | None:
    places = np.linspace(0, len(group) - 1, min(len(group), MAX_STEPS)).round().astype(int)
    read = [(group[place][0], _read(site, entry, group[place][1])) for place in places]
    there = [(step, counts, edges) for step, one in read if one is not None for counts, edges in [one]]
    if not there:
        return None
    low, high = min(float(edges[0]) for *_, edges in there), max(float(edges[-1]) for *_, edges in there)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, BINS + 1)
    return {
        "name": name.removesuffix(SUFFIX),
        "low": low,
        "high": high,
        "steps": [step for step, *_ in there],
        "shares": [_rebinned(counts, edges, bins).round(5).tolist() for _, counts, edges in there],
    }


def _read(site: Site, entry: PageRun, path: str) -> tuple[Array, Array] | None:
    """Counts and ascending edges; None where the file is no histogram."""
    with suppress(OSError, DatabaseError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        with item_file(site, entry, OTHER_RESULTS, path) as file:
            content = json.loads(file.read(MAX_FILE_BYTES))
        counts, edges = (np.array(content[name], dtype=np.float64) for name in ("counts", "edges"))
        with np.errstate(over="ignore"):
            if _fits(counts, edges):
                return np.maximum(counts, 0), edges
    return None


def _fits(counts: Array, edges: Array) -> bool:
    if not counts.ndim == edges.ndim == 1 or not 1 < len(edges) == len(counts) + 1 <= MAX_EDGES:
        return False
    finite = np.isfinite(counts).all() and np.isfinite(edges).all() and np.isfinite(edges[-1] - edges[0])
    return bool(finite and (np.diff(edges) >= 0).all())


def _rebinned(counts: Array, edges: Array, bins: Array) -> Array:
    """The share of the values in each of the common bins."""
    total = counts.sum()
    if not total > 0:
        return np.zeros(len(bins) - 1)
    if not edges[-1] > edges[0]:  # all values are equal
        return np.asarray(np.histogram(edges[:1], bins)[0], dtype=np.float64)
    upto = np.concatenate([[0.0], np.cumsum(counts / total)])
    return np.diff(np.interp(bins, edges, upto))
