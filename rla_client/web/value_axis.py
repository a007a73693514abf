"""An axis of numbers or texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.web.hyper_parameter_values import as_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MAX_TICKS = 12
MAX_TICK_TEXT = 24  # characters of a value beside an axis
LOG_SPAN = 50.0  # ratio of the largest to the least positive number above which an axis is logarithmic


class Axis:
    """Values along an axis: numbers at their values, or else sorted texts at 0, 1, 2."""

    def __init__(self, values: Sequence[Any]) -> None:
        known = [value for value in values if value is not None]
        numbers = as_numbers(known)
        self.texts: list[str] = []
        if numbers is None:
            self.texts = sorted({str(value) for value in known})
            places = {text: float(place) for place, text in enumerate(self.texts)}
            values = [None if value is None else places[str(value)] for value in values]
            numbers = np.arange(len(self.texts), dtype=np.float64)
        # the place of each value, NaN for None
        self.at = np.array([math.nan if value is None else float(value) for value in values])
        self.low, self.high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)
        self.log = not self.texts and self.low > 0 and self.high > self.low * LOG_SPAN

    def scaled(self) -> Array:
        """The places, scaled to 0…1."""
        size = np.log if self.log else np.positive
        low, high = float(size(self.low)), float(size(self.high))
        return np.asarray((size(self.at) - low) / (high - low) if high > low else self.at * 0 + 0.5)

    def ruler(self) -> list[list[Any]]:
        """The ticks of the axis: [[place from 0 to 1, text], …]."""
        if self.high == self.low:  # where `scaled` puts all runs
            return [[0.5, self.texts[0][:MAX_TICK_TEXT] if self.texts else f"{self.low:.4g}"]]
        if not self.texts:
            return [[0, f"{self.low:.4g}"], [1, f"{self.high:.4g}"]]
        step = -(-len(self.texts) // MAX_TICKS)
        last = len(self.texts) - 1
        return [[at / last, text[:MAX_TICK_TEXT]] for at, text in enumerate(self.texts) if at % step == 0]
