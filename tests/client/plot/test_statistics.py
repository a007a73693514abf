"""Estimates and intervals against those of rliable, for its own examples and for an Atari-like pair.

`rliable_reference.json` holds the scores, what rliable gave for them, and with which versions: the pairs
`tests/…` are the arrays of its own tests. They were computed once; rliable is not needed here.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.database.curves.band_kinds import Band
from rla_client.plot import bands, statistics

X = [
    [0.7, 0.79, 0.618, 0.433], [0.564, 0.403, 0.718, 1.102], [0.552, 0.514, 0.847, 0.807],
    [0.732, 0.421, 0.691, 0.909], [0.297, 0.563, 0.13, 0.313],
]  # fmt: skip
Y = [
    [0.7, 0.406, -0.007, 0.609], [0.563, 0.425, -0.507, 0.285], [0.481, 0.545, -0.112, 0.309],
    [0.109, 0.176, 0.924, 0.177], [0.487, 0.854, 0.267, 0.455], [0.544, 0.526, 0.01, 0.53],
]  # fmt: skip
THRESHOLDS = np.linspace(0, 1.5, 7)
REFERENCE = json.loads(Path(__file__).with_name("rliable_reference.json").read_text())["pairs"]
NAMES = ("mean", "median", "interquartile_mean", "optimality_gap")
LATTICE = {"tests/library_test.py": 0.25}  # scores are whole numbers: bounds move in steps
PAIRS = list(REFERENCE.values())


@pytest.mark.parametrize("pair", PAIRS, ids=list(REFERENCE))
@pytest.mark.parametrize("side", ["x", "y"])
def test_point_estimates_equal_rliables_on_its_examples(pair: dict[str, Any], side: str) -> None:
    for name in NAMES:
        assert getattr(statistics, name)(pair[side]) == pytest.approx(pair["point"][side][name], abs=1e-9)
    profile = statistics.performance_profile(pair[side], pair["thresholds"])
    assert profile.tolist() == pytest.approx(pair["profile"][side], abs=1e-9)
    by_task = statistics.performance_profile(pair[side], pair["thresholds"], of_task_means=True)
    assert by_task.tolist() == pytest.approx(pair["profile_of_task_means"][side], abs=1e-9)
    better = statistics.probability_of_improvement(pair["x"], pair["y"])
    assert better == pytest.approx(pair["probability_of_improvement"], abs=1e-9)


def monte_carlo_error(low: float, high: float, repetitions: int, other: int) -> float:
    """Five standard errors of the difference of two bootstrap bounds, for a normal distribution."""
    deviation = (high - low) / 3.92
    return 5 * 2.67 * deviation * math.sqrt(1 / repetitions + 1 / other)


@pytest.mark.parametrize("name", ["tests/library_test.py", "26 tasks, 10 and 5 runs"])
@pytest.mark.parametrize("side", ["x", "y"])
def test_intervals_equal_rliables_within_monte_carlo_error(name: str, side: str) -> None:
    pair = REFERENCE[name]
    for estimate in NAMES:
        low, high = pair["interval"][side][estimate]
        found = statistics.bootstrap(pair[side], getattr(statistics, estimate), repetitions=2000)
        slack = monte_carlo_error(low, high, 2000, 50_000) + LATTICE.get(name, 0.0)
        assert (found.low, found.high) == pytest.approx((low, high), abs=slack), estimate


@pytest.mark.parametrize("name", ["tests/library_test.py", "26 tasks, 10 and 5 runs"])
def test_improvement_and_profile_intervals_too(name: str) -> None:
    pair = REFERENCE[name]
    low, high = pair["improvement_interval"]
    found = statistics.improvement_interval(pair["x"], pair["y"], repetitions=1000)
    assert (found.low, found.high) == pytest.approx(
        (low, high), abs=monte_carlo_error(low, high, 1000, 4000) + 1 / 400
    )
    _, lows, highs = statistics.profile_band(pair["x"], pair["thresholds"], repetitions=1000)
    step = 1.01 / np.size(pair["x"])  # one run above or below a threshold
    for low, high, ours in zip(*pair["profile_interval"]["x"], zip(lows, highs, strict=True), strict=True):
        assert ours == pytest.approx((low, high), abs=step + monte_carlo_error(low, high, 1000, 2000))


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
        bands.curve_band(np.zeros((2, 2)), "nope")  # type: ignore[arg-type]


@pytest.mark.parametrize("band", ["std", "stderr", "range", "ci", "iqm", "median", "none"])
def test_bands_hold_their_centre(band: Band) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(7, 20))
    values[3, 10:] = np.nan
    centre, low, high = bands.curve_band(values, band)
    assert ((low <= centre) & (centre <= high)).all()
    if band == "iqm":
        assert centre[0] == pytest.approx(statistics.interquartile_mean(values[:, 0]))
        assert centre[15] == pytest.approx(statistics.interquartile_mean(values[:, 15]))
    if band == "stderr":
        assert high[15] - centre[15] == pytest.approx(np.nanstd(values[:, 15]) / np.sqrt(6))


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("runs", [1, 2, 7, 500])
def test_percentiles_are_those_of_numpy_to_the_bit(runs: int) -> None:
    random = np.random.default_rng(runs)
    values = random.normal(size=(runs, 300))
    values[random.random(values.shape) < np.linspace(0, 1, 300)] = np.nan
    values[:, :20] = random.choice([np.inf, -np.inf, 1.0, 2.0], (runs, 20))
    wanted = [2.5, 25, 50, 97.5, 100]
    with np.errstate(invalid="ignore"):  # of infinite values
        found = bands._percentiles(values, wanted)
        np.testing.assert_array_equal(found, np.nanpercentile(values, wanted, axis=0))
