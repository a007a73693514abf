"""Sparklines of runs' likely metric for the list."""

from __future__ import annotations

from typing import Any

import numpy as np

from rla_client.web.curve_columns import read_entries
from rla_client.web.page_json import sent
from rla_client.web.run_registry import PageRun, Site

MAX_RUNS = 200  # of one answer; a list shows fewer at a time
POINTS = 36  # of a curve


def sparklines(site: Site, asked: dict[str, Any]) -> dict[str, list[float]]:
    """Run number → finite values of its likely metric, evenly thinned; runs without values are left out.

    Args:
        site: the page's databases.
        asked: `numbers` of at most `MAX_RUNS` runs; further ones are left out.
    """
    by_metric: dict[str, list[PageRun]] = {}
    for entry in site.chosen(asked.get("numbers"))[:MAX_RUNS]:
        if entry.record.likely:
            by_metric.setdefault(entry.record.likely, []).append(entry)
    found: dict[str, list[float]] = {}
    for metric, entries in by_metric.items():
        for entry, table in zip(entries, read_entries(site, entries, [metric]), strict=True):
            ys = table.get(metric, np.empty(0))
            ys = ys[np.isfinite(ys)]
            if len(ys) > POINTS:
                ys = ys[np.linspace(0, len(ys) - 1, POINTS).round().astype(int)]
            if len(ys):
                found[str(entry.number)] = sent(ys.tolist())
    return found
