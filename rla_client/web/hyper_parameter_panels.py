"""Panels of a metric over hyper-parameters.

Answers have the format of curves (`curve_answer.encode`). In `parallel`, each run is a line over the
hyper-parameters, each scaled to 0…1, with the metric last; in `scatter`, each run is one point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.web.curve_answer import curve_response
from rla_client.web.hyper_parameter_values import last_metric_values, parameter_values
from rla_client.web.request_arguments import asked_names
from rla_client.web.run_registry import PageRun, Site
from rla_client.web.value_axis import Axis

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from starlette.responses import Response

    Array = NDArray[np.float64]

MAX_RUNS = 1000  # of one panel; more lines would cover each other
MAX_AXES = 10  # of a panel


def parallel(site: Site, asked: dict[str, Any]) -> Response:
    """Each run as a line over `parameters` and the metric."""
    entries, ys, metric = last_metric_values(site, asked)
    names, total = asked_names(asked.get("parameters"), "parameters")[:MAX_AXES], len(entries)
    entries, ys = entries[:MAX_RUNS], ys[:MAX_RUNS]
    axes = [*map(Axis, parameter_values(entries, names)), Axis(ys.tolist())]
    columns = np.array([axis.scaled() for axis in axes]).reshape(len(axes), len(entries))
    options = {
        "xTicks": [[at, name] for at, name in enumerate([*names, metric.rpartition("/")[2] or metric])],
        "rulers": [axis.ruler() for axis in axes],
    }
    head = _head(site, entries, metric, total) | {"options": options}
    return curve_response(head, np.arange(len(axes), dtype=np.float64), list(columns.T))


def scatter(site: Site, asked: dict[str, Any]) -> Response:
    """Each run as a point, `parameter` on the x axis, the metric on the y axis."""
    entries, ys, metric = last_metric_values(site, asked)
    name, total = str(asked.get("parameter")), len(entries)
    entries, ys = entries[:MAX_RUNS], ys[:MAX_RUNS]
    axis = Axis(parameter_values(entries, [name])[0])
    there = np.flatnonzero(~np.isnan(axis.at))
    xs, places = np.unique(axis.at[there], return_inverse=True)
    series = np.full((len(there), len(xs)), np.nan)
    series[np.arange(len(there)), places] = ys[there]
    options: dict[str, Any] = {"points": True, "logX": axis.log}
    if axis.texts:
        options["xTicks"] = [[at, text] for at, text in enumerate(axis.texts)]
    shown = [entries[at] for at in there]
    return curve_response(
        _head(site, shown, metric, total) | {"x": name, "options": options}, xs, list(series)
    )


def _head(site: Site, entries: Sequence[PageRun], metric: str, total: int) -> dict[str, Any]:
    return {
        "boot": site.boot,
        "kind": "runs",
        "metric": metric,
        "x": "",
        "curves": [{"number": entry.number} for entry in entries],
        "said": f"the first {MAX_RUNS} of {total} runs" if total > MAX_RUNS else "",
    }
