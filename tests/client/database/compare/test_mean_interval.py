"""Mean over runs with its 95 % interval."""

from __future__ import annotations

import statistics

import pytest

from rla_client.database.compare.mean_interval import mean_and_interval


def test_the_interval_is_students() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    mean, half = mean_and_interval(values)
    assert mean == 3.75
    assert half == pytest.approx(3.182 * statistics.stdev(values) / 2)
    assert mean_and_interval([5.0]) == (5.0, None)
    assert mean_and_interval([]) == (None, None)
    assert mean_and_interval([1e300, -1e300])[1] == pytest.approx(12.706e300)
    assert mean_and_interval([0.0, 1.0] * 50)[1] == pytest.approx(
        1.984 * statistics.stdev([0, 1] * 50) / 10, rel=1e-3
    )
    assert mean_and_interval([1.0, 2.0, 3.0])[1] == pytest.approx(4.303 / 3**0.5)
