"""Cells of an array or a DataFrame's column as a list."""

from __future__ import annotations

from typing import Any


def column_cells(column: Any, *, keeps_nan: bool) -> list[Any]:  # noqa: ANN401 - of numpy, pandas or polars
    """The cells as Python's own values; None for missing ones.

    Args:
        column: has `tolist` or `to_list`.
        keeps_nan: NaN stays in a column of floats; elsewhere it is pandas' mark of a missing cell.
    """
    to_list = getattr(column, "tolist", None) or column.to_list
    cells = list(to_list())
    if not callable(getattr(column, "isna", None)):
        return cells
    if keeps_nan and getattr(column.dtype, "kind", "") == "f":
        return cells
    lost = column.isna()
    if lost.any():
        return [None if missing else cell for cell, missing in zip(cells, lost.tolist(), strict=True)]
    return cells
