"""`tabular` and `logger` in dowel's manner, on top of `rla_client.logger`.

    with tabular.prefix("evaluation/"):
        tabular.record("return", 12.5)
    logger.log("text")
    logger.log(tabular)      # these values go into the next row
    logger.dump_all(epoch)   # the row

Runners log `tabular` and dump the row after each epoch themselves. Values recorded by
`rla_client.logger.record_tabular` go into the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rla_client import logger as rla_logger
from rla_client.errors import ArgumentError

DEFAULT_X_AXIS = "TotalEnvSteps"


class TabularInput:
    """Values of the row in the making, under prefixes that nest."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._prefixes: list[str] = []

    def record(self, key: str, val: object) -> None:
        """Set a value; the key gets the prefixes in force."""
        self._values["".join(self._prefixes) + str(key)] = val

    def record_misc_stat(self, key: str, values: Iterable[float], placement: str = "back") -> None:
        """Set average, standard deviation, median, minimum and maximum of `values` (none: NaN).

        Args:
            key: name of what was measured.
            values: the measurements.
            placement: `back` gives `ReturnAverage`, `front` gives `AverageReturn`.

        Raises:
            ArgumentError: another placement.
        """
        import numpy as np  # noqa: PLC0415

        if placement not in {"back", "front"}:
            message = f"placement is 'back' or 'front', got {placement!r}"
            raise ArgumentError(message)
        data = np.asarray(list(values), dtype=np.float64)
        reductions: dict[str, Callable[[Any], Any]] = {
            "Average": np.mean,
            "Std": np.std,
            "Median": np.median,
            "Min": np.min,
            "Max": np.max,
        }
        for word, reduce in reductions.items():
            name = f"{key}{word}" if placement == "back" else f"{word}{key}"
            self.record(name, float(reduce(data)) if data.size else float("nan"))

    @contextmanager
    def prefix(self, prefix: str) -> Iterator[None]:
        """Put `prefix` before the keys recorded in the block."""
        self.push_prefix(prefix)
        try:
            yield
        finally:
            self.pop_prefix()

    def push_prefix(self, prefix: str) -> None:
        """Put `prefix` before further keys."""
        self._prefixes.append(prefix)

    def pop_prefix(self) -> None:
        """Take the last prefix away."""
        self._prefixes.pop()

    def clear(self) -> None:
        """Forget the values."""
        self._values.clear()

    @property
    def as_dict(self) -> dict[str, Any]:
        """A copy of the values."""
        return dict(self._values)

    def swap(self, values: dict[str, Any], prefixes: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Put other contents in and give the former: nested experiments do not mix their rows."""
        former = self._values, self._prefixes
        self._values, self._prefixes = values, prefixes
        return former

    def __reduce__(self) -> str | tuple[object, ...]:
        # by name: a snapshot of code that uses it must not bring a copy of its own
        return "tabular" if self is tabular else (TabularInput, ())


class DowelLogger:
    """Text with prefixes, and rows."""

    def __init__(self) -> None:
        self._prefixes: list[str] = []
        self.x_axis = DEFAULT_X_AXIS

    def log(self, data: object) -> None:
        """Write text, or put the values of a TabularInput into the next row."""
        if isinstance(data, TabularInput):
            for key, value in data.as_dict.items():
                rla_logger.record_tabular(key, value)
            return
        rla_logger.log("".join(self._prefixes) + str(data))

    def dump_all(self, step: int | None = None) -> dict[str, Any]:
        """Write the row. Its time-step is the value under the x axis, else `step`."""
        at = rla_logger.getkvs().get(self.x_axis, step)
        if isinstance(at, (int, float)):
            rla_logger.set_time(at)
        return rla_logger.dump_tabular()

    @contextmanager
    def prefix(self, prefix: str) -> Iterator[None]:
        """Put `prefix` before lines of text written in the block."""
        self.push_prefix(prefix)
        try:
            yield
        finally:
            self.pop_prefix()

    def push_prefix(self, prefix: str) -> None:
        """Put `prefix` before further lines."""
        self._prefixes.append(prefix)

    def pop_prefix(self) -> None:
        """Take the last prefix away."""
        self._prefixes.pop()

    def swap(self, prefixes: list[str], x_axis: str) -> tuple[list[str], str]:
        """Use other prefixes and x axis and give the former."""
        former = self._prefixes, self.x_axis
        self._prefixes, self.x_axis = prefixes, x_axis
        return former

    def __reduce__(self) -> str | tuple[object, ...]:
        return "logger" if self is logger else (DowelLogger, ())


tabular = TabularInput()
logger = DowelLogger()
