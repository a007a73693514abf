"""dowel's `tabular`, the values of the row in the making."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.loaded_modules import loaded


class Histogram:
    """Values whose distribution TensorBoard shows.

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
    """Puts prefixes, which nest, before what it is given: keys, or lines of text."""

    def __init__(self) -> None:
        self._prefixes: list[str] = []

    @contextmanager
    def prefix(self, prefix: str) -> Iterator[None]:
        """Put `prefix` before what is given in the block."""
        self.push_prefix(prefix)
        try:
            yield
        finally:
            self.pop_prefix()

    def push_prefix(self, prefix: str) -> None:
        """Put `prefix` before what is given from now on."""
        self._prefixes.append(prefix)

    def pop_prefix(self) -> None:
        """Take the last prefix away."""
        self._prefixes.pop()


class TabularInput(Prefixed):
    """Values of the row in the making, under prefixes that nest."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, Any] = {}

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
        """Forget the values."""
        self._values.clear()

    def mark(self, key: object = None) -> None:
        """Nothing: a user's outputs tell dowel with this, and the next ones, what they have taken."""

    mark_str = mark_all = disable_warnings = mark

    @property
    def as_dict(self) -> dict[str, Any]:
        """A copy of the values."""
        return dict(self._values)

    @property
    def as_primitive_dict(self) -> dict[str, Any]:
        """A copy of those values that have a place in a table: no histograms, no figures."""
        return {key: value for key, value in self._values.items() if not is_picture(value)}

    def __str__(self) -> str:
        from rla_client.contract.text.row_table import format_table  # noqa: PLC0415 - for outputs of the user only

        return format_table(self.as_primitive_dict)

    def swap(self, values: dict[str, Any], prefixes: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Put other contents in and give the former: nested experiments do not mix their rows."""
        former = self._values, self._prefixes
        self._values, self._prefixes = values, prefixes
        return former

    def __reduce__(self) -> str | tuple[object, ...]:
        # by name: a snapshot of code that uses it must not bring a copy of its own
        return "tabular" if self is tabular else (TabularInput, ())


tabular = TabularInput()
