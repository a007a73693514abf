from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.plot.smoothing import align, smooth, sorted_curve

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
numbers = st.floats(-1e6, 1e6)


def curve(xs: list[float], ys: list[float]) -> tuple[FloatArray, FloatArray]:
    return np.array(xs, dtype=float), np.array(ys, dtype=float)


def test_runs_logged_at_the_same_steps_keep_them() -> None:
    xs, ys = align([curve([0, 1, 2], [1, 2, 3]), curve([0, 1], [5, 6])])
    assert xs.tolist() == [0, 1]
    assert ys.tolist() == [[1, 2], [5, 6]]
    xs, ys = align([curve([0, 1, 2], [1, 2, 3]), curve([0, 1], [5, 6])], vary_len=True)
    assert xs.tolist() == [0, 1, 2]
    assert np.isnan(ys[1, 2])


def test_runs_logged_at_other_steps_are_interpolated_over_what_they_share() -> None:
    xs, ys = align([curve([0, 10], [0, 10]), curve([2, 4, 12], [2, 4, 12])])
    assert (xs[0], xs[-1]) == (2, 10)
    assert np.allclose(ys, xs)


def test_a_later_value_at_a_step_wins_and_order_is_made() -> None:
    xs, ys = sorted_curve(curve([0, 2, 1, 2], [1, 2, 3, 4]))
    assert (xs.tolist(), ys.tolist()) == ([0, 1, 2], [1, 3, 4])


def test_smoothing_is_the_symmetric_exponential_average() -> None:
    xs, ys = curve([0, 0.3, 1, 2.2, 4], [1, 5, 2, 8, 3])
    grid = np.linspace(0, 4, 9)
    step = 0.5 * 1.5
    back = xs[None, :] >= grid[:, None]
    weights = np.exp(-np.abs(grid[:, None] - xs[None, :]) / step)
    weights *= 1 + (xs[None, :] == grid[:, None])  # a point on the grid counts in both directions
    assert back.any()
    assert np.allclose(smooth((xs, ys), grid, 1.5), (weights * ys).sum(1) / weights.sum(1))


@given(st.lists(numbers, min_size=2, max_size=40), st.integers(2, 50), st.floats(0.1, 20))
def test_smoothing_never_leaves_the_range(ys: list[float], points: int, step: float) -> None:
    xs = np.arange(len(ys), dtype=float)
    found = smooth((xs, np.array(ys)), np.linspace(0, len(ys) - 1, points), step)
    slack = 1e-6 * (1 + max(map(abs, ys)))
    assert found.min() >= min(ys) - slack
    assert found.max() <= max(ys) + slack


@pytest.mark.parametrize("resample", [0, 7])
def test_one_point_runs_and_runs_apart(resample: int) -> None:
    xs, ys = align([curve([3], [1]), curve([3], [2])], resample=resample)
    assert (xs.tolist(), ys.tolist()) == ([3], [[1], [2]])
    xs, ys = align([curve([0, 1], [1, 1]), curve([5, 6], [2, 2])], resample=resample)
    assert set(ys[~np.isnan(ys)]) == {1.0, 2.0}
