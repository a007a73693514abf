"""The values of a run's metrics at a time-step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import TIME_STEP
from rla_client.database.curves.progress_csv import recorded_nan
from rla_client.web.curve_columns import read_entries, x_values
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import PageRun, Site

MAX_METRICS = 2000
AT_ONCE = 50  # columns in memory at a time


def values_at_step(site: Site, asked: dict[str, Any]) -> list[list[Any]]:
    """`[name, value, its time-step]` of each metric with a value at or before the `step` of the request.

    Raises:
        ArgumentError: `step` is not a number.
    """
    entry, step = asked_run(site, asked), asked.get("step")
    if not isinstance(step, int | float) or isinstance(step, bool) or not math.isfinite(step):
        raise ArgumentError("step must be a number")
    names = list(entry.record.metrics)[:MAX_METRICS]
    found: list[list[Any]] = []
    for first in range(0, len(names), AT_ONCE):
        found += _values(site, entry, names[first : first + AT_ONCE], step)
    return found


def _values(site: Site, entry: PageRun, names: list[str], step: float) -> Iterator[list[Any]]:
    (table,) = read_entries(site, [entry], [TIME_STEP, *names])
    for name in names:
        ys = table.get(name)
        xs = None if ys is None else x_values(table, TIME_STEP, len(ys))
        if ys is None or xs is None:
            continue
        places = np.flatnonzero((xs <= step) & (~np.isnan(ys) | recorded_nan(ys)))
        if places.size:
            latest = places[xs[places] == xs[places].max()][-1]  # rows of a resumed run may overlap
            yield [name, sent(float(ys[latest])), sent(float(xs[latest]))]
