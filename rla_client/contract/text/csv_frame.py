"""Arguments of pandas for an exact read of a CSV."""

from __future__ import annotations

from typing import Any

EXACT_SINCE = (3, 1)  # this pandas reads floats exactly by default, and warns of the argument


def frame_arguments() -> dict[str, Any]:
    """Arguments of `pandas.read_csv`: exact floats, no index, only `na_values` count as missing."""
    import pandas as pd  # noqa: PLC0415 - not at import of the package

    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    exact = {} if version >= EXACT_SINCE else {"float_precision": "round_trip"}
    return {"index_col": False, "keep_default_na": False, "encoding_errors": "replace", **exact}
