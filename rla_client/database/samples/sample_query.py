"""Queries over a run's samples by filter, order or text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.text.spelling import unknown
from rla_client.database.filter.filter_language import Where
from rla_client.database.samples.sample_index import SampleIndex

ALIASES = {"time-step": "step", "time_step": "step", "timestamp": "time"}
GREP_ROWS = 256  # rows between calls of `go_on`


class _Row:
    """View of one row of the columns for a filter."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.at = 0

    def get(self, name: str, default: object = None) -> object:
        column = self._columns.get(ALIASES.get(name, name))
        value = None if column is None else column[self.at]
        return default if value is None else value


def matching(
    index: SampleIndex,
    where: str | None = None,
    *,
    steps: tuple[float, float] | None = None,
    group: str | None = None,
    name: str | None = None,
) -> list[int]:
    """Numbers of the rows that pass all conditions.

    Args:
        index: index of the run.
        where: filter in the language of `--where`, over the columns.
        steps: first and last time-step, both included.
        group: only this group (samples of one prompt).
        name: only samples logged under this name.

    Raises:
        ArgumentError: the filter cannot be parsed, or names an unknown column.
    """
    columns = index.columns
    rows: Iterable[int] = range(len(index))
    if steps is not None:
        low, high = steps
        step = columns.get("step", [])
        rows = [row for row in rows if low <= step[row] <= high]
    for column, wanted in (("group", group), ("name", name)):
        if wanted is not None:
            values = columns.get(column, [None] * len(index))
            rows = [row for row in rows if values[row] is not None and str(values[row]) == wanted]
    if not where:
        return list(rows)
    test = Where(where)
    for asked in sorted(test.names):
        check_column(index, asked, lacking_ok=asked in test.may_lack or asked in test.texts)
    view = _Row(columns)
    found = []
    for row in rows:
        view.at = row
        if test(view):  # type: ignore[arg-type] # a filter only uses `get`
            found.append(row)
    return found


def check_column(index: SampleIndex, name: str, *, lacking_ok: bool = False) -> str:
    """Name of a column, with aliases resolved.

    Raises:
        UnknownNameError: there is no such column.
    """
    known = ALIASES.get(name, name)
    if known not in index.columns and len(index) and not lacking_ok:
        raise unknown(name, sorted(index.columns), f"the samples have no column {name!r}")
    return known


def ordered(index: SampleIndex, rows: Sequence[int], by: str, *, descending: bool = False) -> list[int]:
    """Rows sorted by a column, stably, with missing values and NaN last.

    Raises:
        UnknownNameError: there is no such column.
    """
    column = index.columns.get(check_column(index, by), [])

    def has(row: int) -> bool:
        value = column[row]
        return value is not None and not (isinstance(value, float) and math.isnan(value))

    with_value = [row for row in rows if has(row)]
    try:
        with_value.sort(key=column.__getitem__, reverse=descending)
    except TypeError:  # a mixture of numbers and texts
        with_value.sort(key=lambda row: (isinstance(column[row], str), str(column[row])), reverse=descending)
    return with_value + [row for row in rows if not has(row)]


def containing(
    index: SampleIndex,
    rows: Sequence[int],
    text: str,
    go_on: Callable[[int], bool] = lambda _: True,
) -> Iterator[int]:
    """Rows with a text in one of their cells; case matters only if the text has capitals.

    Args:
        index: index of the run.
        rows: rows to search, in the order of the result.
        text: text to search for.
        go_on: called every `GREP_ROWS` rows with the number of searched rows; False ends the search.

    Raises:
        ArgumentError: the text is empty.
    """
    if not text:
        raise ArgumentError("the text to look for is empty")
    exact = text != text.lower()
    raw = json.dumps(text, ensure_ascii=False)[1:-1]
    needle = raw if exact else raw.lower()
    for looked, (row, line) in enumerate(index.texts(rows), 1):
        shown = line.decode("utf-8", "replace")
        if needle in (shown if exact else shown.lower()) and _holds(line, text, exact=exact):
            yield row
        if looked % GREP_ROWS == 0 and not go_on(looked):
            return


def _holds(line: bytes, text: str, *, exact: bool) -> bool:
    """Whether a cell, not the name of a column, has the text."""
    return any(text in (one if exact else one.lower()) for one in _texts(json.loads(line)))


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - of JSON
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def summary(index: SampleIndex, row: int) -> dict[str, Any]:
    """The columns of a row that have a value."""
    return {name: column[row] for name, column in index.columns.items() if column[row] is not None}


def parse_steps(text: str) -> tuple[float, float]:
    """First and last time-step of `100`, `100:200`, `100:` or `:200`.

    Raises:
        ArgumentError: the text is none of these.
    """
    low, colon, high = text.partition(":")
    try:
        first = float(low) if low.strip() else -math.inf
        last = (float(high) if high.strip() else math.inf) if colon else first
    except ValueError:
        first = last = math.nan
    if math.isnan(first) or math.isnan(last) or not text.strip():
        raise ArgumentError(f"time-steps are 100, 100:200, 100: or :200, not {text!r}")
    return first, last
