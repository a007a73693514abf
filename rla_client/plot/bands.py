"""Bands of curves over seeds: a centre with two edges."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rla_client.database.curves.band_kinds import Band, band_kind

_Band = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def curve_band(values: NDArray[np.float64], band: Band, *, seed: int = 0, repetitions: int = 500) -> _Band:
    """Centre and band of curves over seeds.

    Args:
        values: shape (runs, points), NaN if a run has no value.
        band: std, stderr, range, ci (95 % bootstrap of the mean), iqm (with its bootstrap band),
            median (with quartiles), or none.
        seed: seed of the bootstrap.
        repetitions: number of bootstrap samples.

    Returns:
        (centre, low, high), shape (points,) each.

    Raises:
        ArgumentError: an unknown band.
    """
    band = band_kind(band)
    makers = {"std": _spread, "stderr": _spread, "none": _spread, "range": _range, "median": _quartiles}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without values give NaN, which is right
        if band in makers:
            return makers[band](values, band)
        random = np.random.default_rng(seed)
        rows = random.integers(0, len(values), (repetitions, len(values)))
        drawn = rows + np.arange(repetitions)[:, None] * len(values)
        counts = np.bincount(drawn.ravel(), minlength=rows.size).reshape(rows.shape).astype(np.float64)
        centres = _means if band == "ci" else _quartile_means
        centre = centres(values, np.ones((1, len(values))))[0]
        low, high = _percentiles(centres(values, counts), [2.5, 97.5])
        return centre, low, high


def _percentiles(values: NDArray[np.float64], wanted: Sequence[float]) -> NDArray[np.float64]:
    """Percentiles of columns; a faster `np.nanpercentile` with bitwise equal results."""
    columns = np.ascontiguousarray(values.T)
    columns.sort(axis=1)  # NaN last
    last = np.count_nonzero(~np.isnan(columns), axis=1) - 1  # -1, which is a NaN, for an empty column
    places = last * (np.array(wanted) / 100)[:, None]
    below = np.floor(places).astype(int)
    number = np.arange(len(columns))
    low, high = columns[number, below], columns[number, np.minimum(below + 1, last)]
    part, step = places - below, high - low
    found: NDArray[np.float64] = np.where(part < 0.5, low + step * part, high - step * (1 - part))  # noqa: PLR2004
    return found  # by numpy's formula


def _means(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over resampled runs.

    Args:
        values: shape (runs, points).
        counts: how often each run was drawn, shape (draws, runs).

    Returns:
        Shape (draws, points); NaN if no drawn run has a value.
    """
    there = ~np.isnan(values)
    if there.all():
        return np.asarray(counts @ values / counts.sum(axis=1, keepdims=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((counts @ np.where(there, values, 0.0)) / (counts @ there.astype(np.float64)))


def _quartile_means(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `_means`, over the middle half of the drawn values; a quarter, rounded down, is cut at each end."""
    found = np.full((len(counts), values.shape[1]), np.nan)
    for point, column in enumerate(values.T):
        there = np.flatnonzero(~np.isnan(column))
        order = there[np.argsort(column[there], kind="stable")]
        times = counts[:, order]
        upto = np.cumsum(times, axis=1)
        total = upto[:, -1:] if order.size else np.zeros((len(counts), 1))
        cut = np.floor(0.25 * total)
        weight = np.clip(np.minimum(upto, total - cut) - np.maximum(upto - times, cut), 0.0, None)
        with np.errstate(invalid="ignore", divide="ignore"):
            found[:, point] = weight @ column[order] / weight.sum(axis=1)
    return found


def _spread(values: NDArray[np.float64], band: Band) -> _Band:
    centre, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    if band == "stderr":
        spread = spread / np.sqrt(np.maximum(np.sum(~np.isnan(values), axis=0), 1))
    if band == "none":
        return centre, centre, centre
    return centre, centre - spread, centre + spread


def _range(values: NDArray[np.float64], _: str) -> _Band:
    return np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)


def _quartiles(values: NDArray[np.float64], _: str) -> _Band:
    low, centre, high = _percentiles(values, [25, 50, 75])
    return centre, low, high
