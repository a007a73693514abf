"""List of a run's samples."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.database.samples.sample_query import check_column, matching, ordered
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import number
from rla_client.web.run_registry import Site
from rla_client.web.sample_histogram import histogram
from rla_client.web.sample_indexes import CachedIndex, cached_index, refreshed

KEPT_LISTS = 8  # of each run
PAGE_ROWS = 200  # of one answer, at most
WHOLE_CHARS = 4 << 20
MAX_STEPS = 5000  # of a slider
MAX_FOUND = 5000


def listing(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """A page of the matching samples, with the names, steps and values to choose from."""
    kept = cached_index(site, asked)
    with kept.lock:
        index = refreshed(kept)
        rows = matching_rows(kept, asked)
        offset = int(number(asked, "offset", 0))
        limit = min(int(number(asked, "limit", 100)), PAGE_ROWS)
        names = list(index.columns)
        shown = rows[max(offset, 0) : max(offset, 0) + max(limit, 0)]
        of = str(asked.get("of") or "reward")
        return {
            "changes": kept.changes,
            "count": len(index),
            "matching": len(rows),
            "left_out": sum(index.left_out.values()),
            "unread": list(map(str, index.unread)),
            "columns": [[name, _is_number(index.columns[name])] for name in names],
            "names": sorted(set(map(str, index.columns.get("name", ())))),
            "steps": _thinned(sorted(set(index.columns.get("step", ())))),
            "rows": [[row, *(sent(index.columns[name][row]) for name in names)] for row in shown],
            "histogram": histogram(index, matching_rows(kept, {**asked, "range": None}), of)
            if limit > 0
            else None,
        }


def matching_rows(kept: CachedIndex, asked: dict[str, Any]) -> list[int]:
    """Row numbers of the matching samples, in order; cached until there are new samples.

    Raises:
        ArgumentError: an argument is invalid.
    """
    where, group, name, sort = (str(asked.get(key) or "") for key in ("where", "group", "name", "sort"))
    step, limits, among = asked.get("step"), asked.get("range"), asked.get("among")
    of = str(asked.get("of") or "reward")
    key = (where, group, name, sort, bool(asked.get("down")), json.dumps([step, limits, among]), of)
    if (known := kept.lists.get(key)) is not None:
        kept.lists.move_to_end(key)
        return known
    index = kept.index
    steps = None if step is None else (number(asked, "step", 0),) * 2
    rows = matching(index, where or None, steps=steps, group=group or None, name=name or None)
    if limits is not None and len(index):
        low, high = _limits(limits)
        column = index.columns[check_column(index, of)]
        rows = [row for row in rows if _within(column[row], low, high)]
    if among is not None:
        chosen = set(row_numbers(among))
        rows = [row for row in rows if row in chosen]
    if sort and len(index):
        rows = ordered(index, rows, sort, descending=bool(asked.get("down")))
    kept.lists[key] = rows
    while len(kept.lists) > KEPT_LISTS:
        kept.lists.popitem(last=False)
    return rows


def row_numbers(asked: object) -> list[int]:
    """Row numbers of a request.

    Raises:
        ArgumentError: they are not a list of whole numbers, or too many.
    """
    if not isinstance(asked, list) or len(asked) > MAX_FOUND or any(type(one) is not int for one in asked):
        raise ArgumentError(f"rows of samples are at most {MAX_FOUND} whole numbers")
    return asked


def _limits(asked: object) -> tuple[float, float]:
    if (
        not isinstance(asked, list)
        or len(asked) != 2  # noqa: PLR2004 - low and high
        or not all(isinstance(one, int | float) and math.isfinite(one) for one in asked)
    ):
        raise ArgumentError("range must be [low, high]")
    return float(asked[0]), float(asked[1])


def _within(value: object, low: float, high: float) -> bool:
    """Whether a value lies in a bin, which excludes its upper end unless both ends are equal."""
    return isinstance(value, int | float) and (low <= value < high or low == value == high)


def _is_number(column: Sequence[object]) -> bool:
    return any(isinstance(value, int | float) for value in column[:1000]) and not any(
        isinstance(value, str) for value in column[:1000]
    )


def _thinned(steps: list[Any]) -> list[Any]:
    every = -(-len(steps) // MAX_STEPS) or 1
    return [sent(step) for step in (steps[::every] if every == 1 else [*steps[:-1:every], steps[-1]])]
