"""The importance of hyper-parameters for a metric.

Of each run one value counts, the last one of the metric. The importance is between 0 and 1, and the larger of
two measures: of numbers the size of Spearman's rank correlation; where there are at least two runs a value,
the correlation ratio of the ranks without what chance brings (epsilon, the root of the share of their
variance that lies between the values), which also sees an effect that goes up and down again, or has no
order. Beside it stand its 95 % interval over draws of the runs with replacement, and what shuffled values
reach in one of twenty tries: an importance that is no larger may be chance. It is what one hyper-parameter
shows by itself: where two were changed together, or one matters in a part of the other's range alone, look at
the picture.

The panels are answered as curves are (`curve_answer.encode`): in `parallel` each run is a line over the
hyper-parameters, each scaled to 0…1, the metric last; in `scatter` each run is one point.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.compare.run_differences import differing_keys
from rla_client.database.filter.name_completion import full_names
from rla_client.database.records.row_view import RowView
from rla_client.web.curves import answer
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import asked_names
from rla_client.web.run_registry import PageRun, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from starlette.responses import Response


if TYPE_CHECKING:
    Array = NDArray[np.float64]
MAX_RUNS = 1000  # of one picture; more are lines on top of each other
MAX_NAMES = 40  # hyper-parameters, the most important ones
MAX_AXES = 10  # beside each other
LEAST_RUNS = 3
DRAWS = 200  # of the runs, for an interval
DRAWN_RUNS = 500  # in each
MAX_TICKS = 12
MAX_TICK_TEXT = 24  # characters of a value beside an axis
LOG_SPAN = 50.0  # of positive numbers: the largest by the least from which on an axis is logarithmic


def importance(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters that differ between runs, the most important first.

    Args:
        site: whose runs.
        asked: `runs` (numbers), `metric`.

    Returns:
        `metric`, `runs` that have it, `names`: {name, rho (None: no numbers), importance, its 95 %
        `interval`, what `chance` reaches, runs}; where there are none, `problem` says why.
    """
    entries, ys, metric = _metric(site, asked)
    found = []
    differing = differing_keys([entry.record for entry in entries])[0]
    for name, values in zip(differing, _values(entries, differing), strict=True):
        there = [at for at, value in enumerate(values) if value is not None]
        known = [values[at] for at in there]
        if len(there) < LEAST_RUNS or len({str(value) for value in known}) < 2:  # noqa: PLR2004
            continue
        rho, weight = weigh(known, ys[there])
        interval, chance = uncertainty(known, ys[there])
        found.append(
            {
                "name": name,
                "rho": rho,
                "importance": weight,
                "interval": [min(interval[0], weight), max(interval[1], weight)],
                "chance": chance,
                "runs": len(there),
            }
        )
    found.sort(key=lambda one: -float(str(one["importance"])))
    problem = "These runs have no metric yet." if not metric else ""
    if metric and len(entries) < LEAST_RUNS:
        problem = f"{len(entries)} of these runs have {metric}: at least {LEAST_RUNS} are needed."
    elif metric and not found:
        problem = (
            "These runs differ in no hyper-parameter. Start some with other values, or select other runs."
        )
    return {"metric": metric, "runs": len(entries), "names": found[:MAX_NAMES], "problem": problem}


def weigh(values: Sequence[Any], ys: Array) -> tuple[float | None, float]:
    """Spearman's rank correlation of values with a metric (None: no numbers), and the importance."""
    target, numbers = ranks(ys), _numbers(values)
    rho = None
    if numbers is not None:
        rho = float(np.corrcoef(ranks(numbers), target)[0, 1]) if np.ptp(target) else 0.0
        rho = 0.0 if math.isnan(rho) else min(max(rho, -1.0), 1.0)
    _, kinds, counts = np.unique([str(value) for value in values], return_inverse=True, return_counts=True)
    groups, total = len(counts), len(target)
    ratio = 0.0
    if np.ptp(target) and total >= 2 * groups:  # else each value has its own mean, whatever it does
        within = float(np.sum((target - (np.bincount(kinds, target) / counts)[kinds]) ** 2)) / (
            total - groups
        )
        ratio = math.sqrt(max(1 - within / float(np.var(target, ddof=1)), 0.0))
    return rho, max(abs(rho or 0.0), ratio)


def uncertainty(values: Sequence[Any], ys: Array) -> tuple[tuple[float, float], float]:
    """The 95 % interval of an importance, and the one that shuffled values reach in one of twenty tries.

    Both by `DRAWS` draws with a fixed seed; of many runs a part is drawn, which makes the interval wider.
    """
    random = np.random.default_rng(0)
    count = min(len(ys), DRAWN_RUNS)
    numbers = _numbers(values)
    _, kinds = np.unique([str(value) for value in values], return_inverse=True)
    target, own = ranks(ys), None if numbers is None else ranks(numbers)
    drawn = random.integers(0, len(ys), (DRAWS, count))
    picked = random.permuted(np.tile(np.arange(len(ys)), (DRAWS, 1)), axis=1)[:, :count]
    shuffled = random.permuted(picked, axis=1)
    sampled = _weights(kinds[drawn], None if own is None else own[drawn], target[drawn])
    chance = _weights(kinds[picked], None if own is None else own[picked], target[shuffled])
    low, high = np.percentile(sampled, [2.5, 97.5])
    return (float(low), float(high)), float(np.percentile(chance, 95))


def _weights(kinds: NDArray[np.int_], numbers: Array | None, target: Array) -> Array:
    """The importance of each of some draws, all of shape (draws, runs); see `weigh`."""
    draws, total = target.shape
    found = np.zeros(draws)
    centred = target - target.mean(axis=1, keepdims=True)
    spread = (centred**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        if numbers is not None:
            own = numbers - numbers.mean(axis=1, keepdims=True)
            found = np.abs((own * centred).sum(axis=1) / np.sqrt((own**2).sum(axis=1) * spread))
        groups = int(kinds.max()) + 1
        flat = (kinds + groups * np.arange(draws)[:, None]).ravel()
        counts = np.bincount(flat, minlength=draws * groups).reshape(draws, groups)
        sums = np.bincount(flat, centred.ravel(), draws * groups).reshape(draws, groups)
        between = np.nansum(np.where(counts > 0, sums**2 / counts, 0.0), axis=1)
        there = (counts > 0).sum(axis=1)
        share = 1 - (spread - between) / (total - there) / (spread / (total - 1))
        ratio = np.sqrt(np.clip(np.where(total >= 2 * there, share, 0.0), 0.0, 1.0))
    return np.asarray(np.fmax(np.nan_to_num(found), np.nan_to_num(ratio)))


def ranks(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[places], dtype=np.float64)


def parallel(site: Site, asked: dict[str, Any]) -> Response:
    """Each run as a line over `parameters` and the metric; see the module's text."""
    entries, ys, metric = _metric(site, asked)
    names, total = asked_names(asked.get("parameters"), "parameters")[:MAX_AXES], len(entries)
    entries, ys = entries[:MAX_RUNS], ys[:MAX_RUNS]
    axes = [*map(_Axis, _values(entries, names)), _Axis(ys.tolist())]
    columns = np.array([axis.scaled() for axis in axes]).reshape(len(axes), len(entries))
    options = {
        "xTicks": [[at, name] for at, name in enumerate([*names, metric.rpartition("/")[2] or metric])],
        "rulers": [axis.ruler() for axis in axes],
    }
    head = _head(site, entries, metric, total) | {"options": options}
    return answer(head, np.arange(len(axes), dtype=np.float64), list(columns.T))


def scatter(site: Site, asked: dict[str, Any]) -> Response:
    """Each run as a point, `parameter` to the right and the metric upwards; see the module's text."""
    entries, ys, metric = _metric(site, asked)
    name, total = str(asked.get("parameter")), len(entries)
    entries, ys = entries[:MAX_RUNS], ys[:MAX_RUNS]
    axis = _Axis(_values(entries, [name])[0])
    there = np.flatnonzero(~np.isnan(axis.at))
    xs, places = np.unique(axis.at[there], return_inverse=True)
    series = np.full((len(there), len(xs)), np.nan)
    series[np.arange(len(there)), places] = ys[there]
    options: dict[str, Any] = {"points": True, "logX": axis.log}
    if axis.texts:
        options["xTicks"] = [[at, text] for at, text in enumerate(axis.texts)]
    shown = [entries[at] for at in there]
    return answer(_head(site, shown, metric, total) | {"x": name, "options": options}, xs, list(series))


def _head(site: Site, entries: Sequence[PageRun], metric: str, total: int) -> dict[str, Any]:
    return {
        "boot": site.boot,
        "kind": "runs",
        "metric": metric,
        "x": "",
        "curves": [{"number": entry.number} for entry in entries],
        "said": f"the first {MAX_RUNS} of {total} runs" if total > MAX_RUNS else "",
    }


class _Axis:
    """Values along an axis: numbers where they are, else their texts, which stand at 0, 1, …, in order."""

    def __init__(self, values: Sequence[Any]) -> None:
        known = [value for value in values if value is not None]
        numbers = _numbers(known)
        self.texts: list[str] = []
        if numbers is None:
            self.texts = sorted({str(value) for value in known})
            places = {text: float(place) for place, text in enumerate(self.texts)}
            values = [None if value is None else places[str(value)] for value in values]
            numbers = np.arange(len(self.texts), dtype=np.float64)
        # the place of each; NaN where there is none
        self.at = np.array([math.nan if value is None else float(value) for value in values])
        self.low, self.high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)
        self.log = not self.texts and self.low > 0 and self.high > self.low * LOG_SPAN

    def scaled(self) -> Array:
        """Places from 0 to 1."""
        size = np.log if self.log else np.positive
        low, high = float(size(self.low)), float(size(self.high))
        return np.asarray((size(self.at) - low) / (high - low) if high > low else self.at * 0 + 0.5)

    def ruler(self) -> list[list[Any]]:
        """What stands beside the axis: [[place, text], …]."""
        if self.high == self.low:  # where `scaled` puts all runs
            return [[0.5, self.texts[0][:MAX_TICK_TEXT] if self.texts else f"{self.low:.4g}"]]
        if not self.texts:
            return [[0, f"{self.low:.4g}"], [1, f"{self.high:.4g}"]]
        step = -(-len(self.texts) // MAX_TICKS)
        last = len(self.texts) - 1
        return [[at / last, text[:MAX_TICK_TEXT]] for at, text in enumerate(self.texts) if at % step == 0]


def _metric(site: Site, asked: dict[str, Any]) -> tuple[list[PageRun], Array, str]:
    """Runs whose last value of a metric is a finite number, these values, and the metric's name."""
    metric = asked.get("metric")
    if not isinstance(metric, str):
        raise ArgumentError("metric must be a name")
    found = []
    for entry in site.chosen(asked.get("runs")):
        value = entry.record.metrics.get(metric)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.append((entry, float(value)))
    return [entry for entry, _ in found], np.array([value for _, value in found]), metric


def _values(entries: Sequence[PageRun], names: Sequence[str]) -> list[list[Any]]:
    """Each hyper-parameter of some runs: numbers, texts, None where it is not there or no number at all."""
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


def _numbers(values: Sequence[Any]) -> Array | None:
    """They as numbers, also where texts spell them; None where one is none."""
    try:
        found = np.array([float(value) for value in values], dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found).all() else None
