"""Pages of a table that a run left in its results.

A table is read anew for each request, within bounds; the answer tells what it leaves out.
"""

from __future__ import annotations

import math
from typing import Any

from rla_client.contract.layout import OTHER_RESULTS
from rla_client.web.item_files import item_file
from rla_client.web.page_json import SAFE_INTEGER
from rla_client.web.request_arguments import asked_run, whole_number
from rla_client.web.row_filters import cell_text, column_place, order_key, row_tests
from rla_client.web.run_registry import Site
from rla_client.web.table_files import read_table

MAX_CELL = 2000  # characters of a cell in an answer
MAX_SENT = 500  # rows of an answer


def table(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Some rows of a table.

    Args:
        site: the page's databases.
        asked: `run`, and `path` below its results; optional are `search` (a text in any cell of a row),
            `filters` (column number → part of the cell's text, or a comparison such as `> 3`), `sort` (column
            number), `down` (descending), `from` (first row), `count`.

    Returns:
        `columns`, `rows`, `fitting` (rows that match), `total` (rows that were read), `cut` (there are more).

    Raises:
        ArgumentError: the file is no table, or an argument is invalid.
    """
    path = str(asked.get("path"))
    with item_file(site, asked_run(site, asked), OTHER_RESULTS, path) as file:
        columns, rows, cut = read_table(path, file)
    total = len(rows)
    for test in row_tests(asked, len(columns)):
        rows = [row for row in rows if test(row)]
    sort = asked.get("sort")
    if sort is not None:
        place = column_place(sort, len(columns))
        rows.sort(key=lambda row: order_key(row[place]), reverse=asked.get("down") is True)
        rows.sort(key=lambda row: row[place] is None or row[place] == "")  # empty cells come last
    first, count = (whole_number(asked, name, default) for name, default in (("from", 0), ("count", 100)))
    shown = rows[first : first + min(count, MAX_SENT)]
    return {
        "columns": columns,
        "rows": [[_sent(cell) for cell in row] for row in shown],
        "fitting": len(rows),
        "total": total,
        "cut": cut,
    }


def _sent(cell: object) -> object:
    if isinstance(cell, bool) or (isinstance(cell, int) and abs(cell) < SAFE_INTEGER) or cell is None:
        return cell
    if isinstance(cell, float) and math.isfinite(cell):
        return cell
    text = cell_text(cell)
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"
