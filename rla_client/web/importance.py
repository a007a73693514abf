"""The importance of hyper-parameters for a metric.

Each run contributes the last value of the metric. The importance is between 0 and 1. It is the larger of two
measures: for numbers, the absolute value of Spearman's rank correlation; where there are at least two runs
for each value, the correlation ratio of the ranks, corrected for chance (epsilon: the root of the share of
the variance of the ranks that lies between the values). The second measure also detects effects that are not
monotonic or have no order.

Beside the importance stand its 95 % bootstrap interval over the runs, and the importance that shuffled values
reach in one of twenty tries: an importance that is not larger may be chance. An importance is that of one
hyper-parameter alone; for parameters that were changed together or that interact, look at the panels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.database.compare.run_differences import differing_keys
from rla_client.web.hyper_parameter_values import as_numbers, last_metric_values, parameter_values
from rla_client.web.run_registry import Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MAX_NAMES = 40  # hyper-parameters in an answer
LEAST_RUNS = 3
DRAWS = 200  # bootstrap draws for an interval
DRAWN_RUNS = 500  # in each draw, at most


def importance(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters that differ between runs, the most important first.

    Args:
        site: the page's databases.
        asked: `runs` (numbers), `metric`.

    Returns:
        `metric`; `runs`: how many have it; `names`: [{name, rho (None for texts), importance, its 95 %
        `interval`, the importance `chance` reaches, runs}, …]; `problem`: why there are no names.
    """
    entries, ys, metric = last_metric_values(site, asked)
    found = []
    differing = differing_keys([entry.record for entry in entries])[0]
    for name, values in zip(differing, parameter_values(entries, differing), strict=True):
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
    """Spearman's rank correlation of values with a metric (None for texts), and the importance."""
    target, numbers = ranks(ys), as_numbers(values)
    rho = None
    if numbers is not None:
        rho = float(np.corrcoef(ranks(numbers), target)[0, 1]) if np.ptp(target) else 0.0
        rho = 0.0 if math.isnan(rho) else min(max(rho, -1.0), 1.0)
    _, kinds, counts = np.unique([str(value) for value in values], return_inverse=True, return_counts=True)
    groups, total = len(counts), len(target)
    ratio = 0.0
    if np.ptp(target) and total >= 2 * groups:  # with one run a value, each value would explain its run
        within = float(np.sum((target - (np.bincount(kinds, target) / counts)[kinds]) ** 2)) / (
            total - groups
        )
        ratio = math.sqrt(max(1 - within / float(np.var(target, ddof=1)), 0.0))
    return rho, max(abs(rho or 0.0), ratio)


def uncertainty(values: Sequence[Any], ys: Array) -> tuple[tuple[float, float], float]:
    """The 95 % interval of an importance, and what shuffled values reach in one of twenty tries.

    Both are estimated by `DRAWS` draws with a fixed seed, of at most `DRAWN_RUNS` runs each.
    """
    random = np.random.default_rng(0)
    count = min(len(ys), DRAWN_RUNS)
    numbers = as_numbers(values)
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
    """The importance in each draw, see `weigh`; the arguments have the shape (draws, runs)."""
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
    """Ranks from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[places], dtype=np.float64)
