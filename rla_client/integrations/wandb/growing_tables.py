"""Tables that grow from one `log` to the next.

Frameworks log a table of all samples so far, again and again: each file then holds the rows that are new, and
n rows cost n rows. A table that does not begin with the rows that were logged last is kept as a whole, as is
another table with the very same rows at another step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rla_client.integrations.wandb.values import Table

_COMPARED = frozenset({str, int, float, bool, type(None), list, dict, tuple})  # images are not held
Rows = list[tuple[Any, ...]]


class GrowingTables:
    """The rows of the table that was logged last under each name."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[Table, list[str], Rows, float]] = {}

    def new_rows(self, name: str, table: Table, step: float) -> Table | None:
        """The rows that are to be kept of a table that is logged at a step; None where none is new."""
        last, columns, before, at = self._logged.pop(name, (None, [], [], 0.0))
        rows = [tuple(row) for row in table.data]
        if all(type(cell) in _COMPARED or isinstance(cell, np.generic) for row in rows for cell in row):
            self._logged[name] = table, list(table.columns), rows, step
        count = len(before)
        if not count or columns != table.columns:
            return table
        if at == step and count == len(rows) and repr(rows) == repr(before):  # NaN is unequal to itself
            return None
        if not _begins_with(rows, before):
            return table
        if count == len(rows):
            return None if table is last else table
        return Table(columns=table.columns, data=table.data[count:])


def _begins_with(rows: Rows, before: Rows) -> bool:
    try:
        return rows[: len(before)] == before  # cells that are the same object are not looked into
    except (ValueError, RecursionError):  # an array in a list; a list that holds itself
        return False
