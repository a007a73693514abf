"""Histogram of a column of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rla_client.database.samples.sample_index import SampleIndex

BINS = 24


def histogram(index: SampleIndex, rows: Sequence[int], of: str) -> dict[str, Any] | None:
    """The histogram of a column as [[low, high, count], …]; None where it has no numbers."""
    column = index.columns.get(of)
    if column is None:
        return None
    values = [
        float(value)
        for value in (column[row] for row in rows)
        if isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1e300  # noqa: PLR2004 - of doubles
    ]
    if not values:
        return None
    low, high = min(values), max(values)
    distinct = sorted(set(values[:10_000]))
    if len(distinct) <= BINS and len(set(values)) == len(distinct):  # such as rewards of 0 or 1
        counts = dict.fromkeys(distinct, 0)
        for value in values:
            counts[value] += 1
        return {"of": of, "bins": [[value, value, count] for value, count in counts.items()]}
    high = math.nextafter(high, math.inf)  # a bin excludes its upper end
    width = (high - low) / BINS
    tally = [0] * BINS
    for value in values:
        tally[min(BINS - 1, int((value - low) / width))] += 1
    bins = [
        [low + at * width, high if at == BINS - 1 else low + (at + 1) * width, n]
        for at, n in enumerate(tally)
    ]
    return {"of": of, "bins": bins}
