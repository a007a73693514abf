"""dowel's `tabular`, the values of the current row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.loaded_modules import loaded


class Histogram:
    """Values for a histogram in TensorBoard.

    Args:
        values: numbers, of any shape.
    """

    def __init__(self, values: Iterable[float]) -> None:
        import numpy as np  # noqa: PLC0415

        self.values = np.asarray(values, dtype=np.float64).ravel()


def is_picture(value: object) -> bool:
    """Whether a value goes to TensorBoard only: a Histogram or a matplotlib figure."""
    if isinstance(value, Histogram):
        return True
    figure = loaded("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


class Prefixed:
    """Nested prefixes of keys or lines of text."""

    def __init__(self) -> None:
        self._prefixes: list[str] = []

    @contextmanager
    def prefix(self, prefix: str) -> Iterator[None]:
        """Add `prefix` during the block."""
        self.push_prefix(prefix)
        try:
            yield
        finally:
            self.pop_prefix()

    def push_prefix(self, prefix: str) -> None:
        """Add `prefix` from now on."""
        self._prefixes.append(prefix)

    def pop_prefix(self) -> None:
        """Remove the last prefix."""
        self._prefixes.pop()


class TabularInput(Prefixed):
    """Values of the current row, under nested prefixes."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, Any] = {}

    def record(self, key: str, val: object) -> None:
        """Set a value; the key gets the current prefixes."""
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
            raise ArgumentError(f"placement is 'back' or 'front', got {placement!r}")
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

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()

    def mark(self, key: object = None) -> None:
        """Do nothing: outputs of a user call this and its aliases to report the keys they wrote."""

    mark_str = mark_all = disable_warnings = mark

    @property
    def as_dict(self) -> dict[str, Any]:
        """A copy of the values."""
        return dict(self._values)

    @property
    def as_primitive_dict(self) -> dict[str, Any]:
        """A copy of the values that fit into a table: no histograms, no figures."""
        return {key: value for key, value in self._values.items() if not is_picture(value)}

    def __str__(self) -> str:
        from rla_client.contract.text.printed_row import format_table  # noqa: PLC0415 - for outputs of the user only

        return format_table(self.as_primitive_dict)

    def swap(self, values: dict[str, Any], prefixes: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Replace the contents and return the former ones, so that nested experiments have separate rows."""
        former = self._values, self._prefixes
        self._values, self._prefixes = values, prefixes
        return former

    def __reduce__(self) -> str | tuple[object, ...]:
        # by name: a snapshot of code that uses it must not contain a copy
        return "tabular" if self is tabular else (TabularInput, ())


tabular = TabularInput()
