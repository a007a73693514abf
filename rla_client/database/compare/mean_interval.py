"""Mean over runs with its 95 % interval (Student's t)."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Student's t, 97.5 %, by degrees of freedom from 1
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def mean_and_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean of values and half of its 95 % interval (Student's t); the half is None for a single value."""
    count = len(values)
    if not count:
        return None, None
    if count == 1:
        return values[0], None
    mean, error = mean_and_error(values)
    return mean, t_quantile(count - 1) * error


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean of two or more values, and its standard error."""
    count = len(values)
    mean = sum(values) / count
    return mean, math.hypot(*(value - mean for value in values)) / math.sqrt(
        (count - 1) * count
    )  # no overflow


def t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t: half of a 95 % interval in standard errors."""
    return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.42 / freedom
