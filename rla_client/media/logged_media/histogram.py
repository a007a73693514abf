"""A histogram."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.logged_value import LoggedValue, Where, to_array
from rla_client.media.result_file import keep_bytes

MAX_BINS = 512


class Histogram(LoggedValue):
    """The distribution of values at a time-step: `log({"actions": Histogram(actions)})`.

    Kept as `<time-step>-actions.histogram.json`, `{"edges": [n + 1 numbers], "counts": [n numbers]}`, and as
    a histogram of TensorBoard if that is an output.

    Args:
        values: an array, tensor or list of numbers; NaN and infinite values are left out.
        bins: number of bins between the least and the greatest value.
        counts: instead of `values`: the number of values in each bin.
        edges: with `counts`: edges of the bins, one more than counts.

    Raises:
        ArgumentError: neither values nor counts with edges are given, or the latter do not match.
    """

    is_event: ClassVar[bool] = True

    def __init__(self, values: Any = None, bins: int = 64, *, counts: Any = None, edges: Any = None) -> None:  # noqa: ANN401 - see above
        if not 1 <= bins <= MAX_BINS:
            raise ArgumentError(f"a histogram has 1 to {MAX_BINS} bins, got {bins}")
        if (values is None) == (counts is None) or (counts is None) != (edges is None):
            raise ArgumentError("a histogram takes values, or counts with edges")
        self._problem = ""  # a fault of the numbers, which `check` reports
        self.values: Any = None
        self.counts: Any = None
        self.edges: Any = None
        try:
            if counts is None:
                found = to_array(values).astype("float64").reshape(-1)
                self.values = found[abs(found) < float("inf")]
                self.counts, self.edges = _counted(self.values, bins)
            else:
                self.counts, self.edges = (to_array(part).astype("float64") for part in (counts, edges))
        except Exception as error:  # noqa: BLE001 - numbers come from foreign code; logging never ends training
            self._problem = f"no numbers to count: {type(error).__name__}: {error}"
            return
        if (
            self.counts.ndim != 1
            or self.edges.shape != (len(self.counts) + 1,)
            or len(self.counts) > MAX_BINS
        ):
            raise ArgumentError(
                f"a histogram of counts {self.counts.shape} has one edge more, and at most {MAX_BINS} bins; "
                f"got edges {self.edges.shape}"
            )

    def check(self) -> None:
        """Check that the histogram has numbers.

        Raises:
            ArgumentError: it has none.
        """
        if self._problem:
            raise ArgumentError(self._problem)

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return ".histogram.json"

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        self.check()
        content = {"edges": self.edges.tolist(), "counts": self.counts.tolist()}
        keep_bytes(f"{name}.histogram.json", json.dumps(content).encode(), where)


def _counted(values: Any, bins: int) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
    import numpy as np  # noqa: PLC0415 - not at import of the package

    try:
        with np.errstate(all="ignore"):
            return np.histogram(values, bins=bins)
    except ValueError:  # the range is too small for the bins, or too large for a float
        low, high = float(values.min()), float(values.max())
        if low == high or not np.isfinite(high - low):
            return np.array([values.size]), np.array([low, high])
        reach = max(abs(low), abs(high)) * 1e-6
        return np.histogram(values, bins=bins, range=(low - reach, high + reach))
