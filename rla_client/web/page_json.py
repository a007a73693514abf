"""JSON encoding of values for a browser."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SAFE_INTEGER = 1 << 53  # larger integers are not exact in a browser


def sent(value: object) -> Any:  # noqa: ANN401 - whatever a run has recorded
    """A value as JSON that a browser reads exactly: NaN, infinities and large integers become texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < SAFE_INTEGER else str(value)
    if isinstance(value, Mapping):
        return {str(key): sent(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sent(item) for item in value]
    return str(value)
