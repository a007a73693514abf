"""Filters of a table's rows."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import is_texts
from rla_client.web.table_files import Row

_COMPARED = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(.+)", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def row_tests(asked: dict[str, Any], width: int) -> list[Callable[[Row], bool]]:
    """The tests that a row must pass.

    Raises:
        ArgumentError: a filter is invalid.
    """
    found: list[Callable[[Row], bool]] = []
    if words := asked.get("search"):
        wanted = str(words).lower()
        found.append(lambda row: any(wanted in cell_text(cell).lower() for cell in row))
    filters = asked.get("filters") or {}
    if not isinstance(filters, dict) or not is_texts(list(filters.values())):
        raise ArgumentError("filters are texts by the place of their column")
    for name, text in filters.items():
        if text.strip():
            found.append(_column_test(column_place(name, width), text))
    return found


def _column_test(place: int, text: str) -> Callable[[Row], bool]:
    match = _COMPARED.fullmatch(text)
    if match is None:
        wanted = text.strip().lower()
        return lambda row: wanted in cell_text(row[place]).lower()
    compare, (kind, limit) = _COMPARE[match[1]], order_key(match[2].strip())

    def test(row: Row) -> bool:
        own_kind, own = order_key(row[place])
        return compare(own, limit) if own_kind == kind else match[1] == "!="

    return test


def order_key(cell: object) -> tuple[int, Any]:
    """A sort key: numbers (also texts that spell one) by value, then texts."""
    try:
        number = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 1, cell_text(cell).lower()
    return (1, "nan") if math.isnan(number) else (0, number)


def cell_text(cell: object) -> str:
    """A cell as text; empty for None."""
    if cell is None:
        return ""
    plain = sent(cell)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def column_place(value: object, width: int) -> int:
    """The column number that a request names.

    Raises:
        ArgumentError: the table has no such column.
    """
    text = str(value)
    if not text.isdecimal() or len(text) > 4 or int(text) >= width:  # noqa: PLR2004 - digits
        raise ArgumentError(f"there is no column {text[:20]}")
    return int(text)
