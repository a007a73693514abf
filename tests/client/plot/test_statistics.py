"""Point estimates against those of rliable 1.2 for the same scores, written down here; intervals too."""

from __future__ import annotations

import numpy as np
import pytest

from rla_client.errors import ArgumentError
from rla_client.plot import statistics

X = [
    [0.7, 0.79, 0.618, 0.433], [0.564, 0.403, 0.718, 1.102], [0.552, 0.514, 0.847, 0.807],
    [0.732, 0.421, 0.691, 0.909], [0.297, 0.563, 0.13, 0.313],
]  # fmt: skip
Y = [
    [0.7, 0.406, -0.007, 0.609], [0.563, 0.425, -0.507, 0.285], [0.481, 0.545, -0.112, 0.309],
    [0.109, 0.176, 0.924, 0.177], [0.487, 0.854, 0.267, 0.455], [0.544, 0.526, 0.01, 0.53],
]  # fmt: skip
THRESHOLDS = np.linspace(0, 1.5, 7)


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (statistics.mean, 0.6052000000000001),
        (statistics.median, 0.5849),
        (statistics.interquartile_mean, 0.6085),
        (statistics.optimality_gap, 0.3998999999999999),
    ],
)
def test_point_estimates_equal_rliable(estimate: statistics.Estimate, expected: float) -> None:
    assert estimate(np.array(X)) == pytest.approx(expected, abs=1e-9)


def test_comparisons_and_profiles_equal_rliable() -> None:
    assert statistics.interquartile_mean(Y) == pytest.approx(0.4076666666666666, abs=1e-9)
    assert statistics.probability_of_improvement(X, Y) == pytest.approx(0.7125, abs=1e-9)
    assert statistics.performance_profile(X, THRESHOLDS).tolist() == [1.0, 0.95, 0.7, 0.25, 0.05, 0.0, 0.0]
    by_task = statistics.performance_profile(X, THRESHOLDS, of_task_means=True)
    assert by_task.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_intervals_equal_rliable_within_monte_carlo_error() -> None:
    iqm = statistics.bootstrap(X, statistics.interquartile_mean, repetitions=8000)
    assert (iqm.low, iqm.high) == pytest.approx((0.495, 0.71), abs=0.008)
    mean = statistics.bootstrap(X, statistics.mean, repetitions=8000)
    assert (mean.low, mean.high) == pytest.approx((0.5072, 0.69825), abs=0.008)
    better = statistics.improvement_interval(X, Y, repetitions=4000)
    assert (better.low, better.high) == pytest.approx((0.5457, 0.8583), abs=0.02)


def test_a_95_percent_interval_holds_the_truth_about_95_times_in_100() -> None:
    random = np.random.default_rng(3)
    hits = 0
    for trial in range(100):
        found = statistics.bootstrap(
            random.normal(2.0, 1.0, (30, 2)), statistics.mean, repetitions=300, seed=trial
        )
        hits += found.low <= 2.0 <= found.high
    assert 86 <= hits <= 100


def test_unequal_numbers_of_runs() -> None:
    scores = statistics.pad([[1.0, 2.0, 3.0], [5.0]])
    assert scores.shape == (3, 2)
    assert statistics.mean(scores) == 3.5
    assert statistics.interquartile_mean(scores) == 2.5
    assert statistics.optimality_gap(statistics.pad([[0.5, 2.0], [0.0]])) == pytest.approx(0.5)
    assert statistics.probability_of_improvement(statistics.pad([[1, 2], [3]]), [[0.0, 3.0]]) == 0.75
    found = statistics.bootstrap(scores, statistics.mean, repetitions=100)
    assert found.low >= 3.0


def test_the_same_seed_gives_the_same_interval() -> None:
    first = statistics.bootstrap(X, statistics.median, repetitions=50, seed=5)
    assert first == statistics.bootstrap(X, statistics.median, repetitions=50, seed=5)
    profile, low, high = statistics.profile_band(X, THRESHOLDS, repetitions=50)
    assert ((low <= profile) & (profile <= high)).all()


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ArgumentError):
        statistics.mean(np.zeros((2, 2, 2)))
    with pytest.raises(ArgumentError):
        statistics.mean([float("nan")])
    with pytest.raises(ArgumentError, match="tasks"):
        statistics.probability_of_improvement(X, [1.0])
    with pytest.raises(ArgumentError, match="band"):
        statistics.curve_band(np.zeros((2, 2)), "nope")


@pytest.mark.parametrize("band", ["std", "stderr", "range", "ci", "iqm", "median", "none"])
def test_bands_hold_their_centre(band: str) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(7, 20))
    values[3, 10:] = np.nan
    centre, low, high = statistics.curve_band(values, band)
    assert ((low <= centre) & (centre <= high)).all()
    if band == "iqm":
        assert centre[0] == pytest.approx(statistics.interquartile_mean(values[:, 0]))
        assert centre[15] == pytest.approx(statistics.interquartile_mean(values[:, 15]))
    if band == "stderr":
        assert high[15] - centre[15] == pytest.approx(np.nanstd(values[:, 15]) / np.sqrt(6))
