"""A histogram."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from rla_client.contract.errors import ArgumentError
from rla_client.media.result_file import keep_bytes
from rla_client.media.values.logged_value import LoggedValue, Where, to_array

MAX_BINS = 512


class Histogram(LoggedValue):
    """The distribution of values at a time-step: `log({"actions": Histogram(actions)})`.

    Kept as `<time-step>-actions.histogram.json`, `{"edges": [n + 1 numbers], "counts": [n numbers]}`, and
    as a histogram of TensorBoard where that is an output.

    Args:
        values: any array, tensor or list of numbers; those that are not finite are left out.
        bins: number of bins between the least and the greatest value.
        counts: instead of `values`, numbers of values in each bin; with
        edges: of the bins, one more than counts.

    Raises:
        ArgumentError: neither values nor counts with edges, or they do not fit.
    """

    is_event: ClassVar[bool] = True

    def __init__(self, values: Any = None, bins: int = 64, *, counts: Any = None, edges: Any = None) -> None:  # noqa: ANN401 - see above
        import numpy as np  # noqa: PLC0415 - not at import of the package

        if not 1 <= bins <= MAX_BINS:
            raise ArgumentError(f"a histogram has 1 to {MAX_BINS} bins, got {bins}")
        self.values = None
        if counts is None and edges is None and values is not None:
            found = to_array(values).astype(np.float64).reshape(-1)
            self.values = found[np.isfinite(found)]
            self.counts, self.edges = np.histogram(self.values, bins=bins)
        elif counts is not None and edges is not None and values is None:
            self.counts, self.edges = (to_array(part).astype(np.float64) for part in (counts, edges))
        else:
            raise ArgumentError("a histogram takes values, or counts with edges")
        if (
            self.counts.ndim != 1
            or self.edges.shape != (len(self.counts) + 1,)
            or len(self.counts) > MAX_BINS
        ):
            raise ArgumentError(
                f"a histogram of {len(self.counts)} counts has {len(self.counts) + 1} edges, "
                f"and at most {MAX_BINS} bins; got {len(self.edges)} edges"
            )

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        content = {"edges": self.edges.tolist(), "counts": self.counts.tolist()}
        keep_bytes(f"{name}.histogram.json", json.dumps(content).encode(), where)
