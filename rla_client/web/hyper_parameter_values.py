"""Hyper-parameters of runs beside a metric's last value."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.filter.name_completion import full_names
from rla_client.database.records.row_view import RowView
from rla_client.web.page_json import sent
from rla_client.web.run_registry import PageRun, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def last_metric_values(site: Site, asked: dict[str, Any]) -> tuple[list[PageRun], Array, str]:
    """Runs with a finite last value of the metric, these values, and the metric's name.

    Raises:
        ArgumentError: the request names no metric.
    """
    metric = asked.get("metric")
    if not isinstance(metric, str):
        raise ArgumentError("metric must be a name")
    found = []
    for entry in site.chosen(asked.get("runs")):
        value = entry.record.metrics.get(metric)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.append((entry, float(value)))
    return [entry for entry, _ in found], np.array([value for _, value in found]), metric


def parameter_values(entries: Sequence[PageRun], names: Sequence[str]) -> list[list[Any]]:
    """For each name, the value in each run: a number, a text, or None (absent, NaN or infinite)."""
    now = clock()
    full = full_names(set(names), [entry.record for entry in entries], lenient=True)
    found: list[list[Any]] = [[] for _ in names]
    for entry in entries:  # run by run: large parameters are not kept parsed
        view = RowView(entry.record, now)
        for name, values in zip(names, found, strict=True):
            values.append(_plain(view.get(full[name])))
    return found


def _plain(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else None  # noqa: PLR2004 - also NaN and infinite
    return json.dumps(sent(value), ensure_ascii=False)


def as_numbers(values: Sequence[Any]) -> Array | None:
    """Numbers, or texts that spell numbers, as an array; None where a value is neither, or not finite."""
    try:
        found = np.array([float(value) for value in values], dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found).all() else None
