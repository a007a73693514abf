"""Expansion of shortened names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rla_client.contract.text.spelling import ends_in, full_name, unknown
from rla_client.database.curves.stream_tables import of_all_roles
from rla_client.database.filter.filter_language import Where
from rla_client.database.records.record import Record
from rla_client.database.records.row_view import ALIASES, FIELDS

Cells = tuple[Any, ...]  # a row of the catalogue


def full_names(
    names: AbstractSet[str],
    records: Sequence[Record] | LazyRecords,
    *,
    lenient: bool = False,
    texts: AbstractSet[str] = frozenset(),
) -> dict[str, str]:
    """Name → full name; the last parts of a dotted or nested name are enough.

    A name that any run has stays as it is. Otherwise it may abbreviate a hyper-parameter, else a metric.

    Args:
        names: names of fields, hyper-parameters or metrics.
        records: records of the runs; without any, all names stay as they are.
        lenient: keep a name that no run has, instead of raising.
        texts: names that may be texts without their quotes, for the message.

    Raises:
        UnknownNameError: no run has a name, or a name matches several.
    """
    found = {name: name for name in names}
    missing = names - set(FIELDS) - ALIASES.keys()
    missing = missing - _there(records, missing) if records else set()
    if not missing:
        return found
    hyper = dict.fromkeys(key for record in reversed(records) for key in record.hyper.flat())
    metrics = dict.fromkeys(key for record in reversed(records) for key in record.metrics)
    for name in sorted(missing):
        pool = hyper if ends_in(name, hyper) else metrics
        if ends_in(name, pool):
            found[name] = full_name(name, pool, "")
        elif not lenient:
            quotes = f'; if it is text, put it in quotes: "{name}"' if name in texts else ""
            raise unknown(name, [*hyper, *metrics, *FIELDS, *ALIASES], f"no run has {name!r}{quotes}")
    return found


def spell(test: Where, records: Sequence[Record] | LazyRecords) -> None:
    """Set the full names of a filter; see `full_names`.

    Raises:
        UnknownNameError: no run has a name, or a name matches several.
    """
    lacked = full_names(test.may_lack, records, lenient=True)
    test.full = lacked | full_names(test.names - test.may_lack, records, texts=test.texts)


def full_metrics(names: Sequence[str], records: Sequence[Record]) -> list[str]:
    """Full names of metrics; a metric that only roles have stands for that of each role.

    Raises:
        UnknownNameError: no run has a metric, or a name matches several.
    """
    if not records or all(any(name in record.metrics for record in records) for name in names):
        return list(names)
    known = list(dict.fromkeys(key for record in reversed(records) for key in record.metrics))
    every = [one for name in names for one in of_all_roles(name, known)]
    return list(dict.fromkeys(full_name(name, known, f"no run has a metric {name!r}") for name in every))


def _there(records: Sequence[Record] | LazyRecords, names: AbstractSet[str]) -> set[str]:
    """The names that at least one run has."""
    left = {name: _quoted(name) for name in names}
    for record in reversed(records):  # run by run, so that only one run's parameters are parsed at a time
        if not left:
            break
        for name, quoted in list(left.items()):  # searching the text first saves parsing most records
            spelled = any(part in record.hyper_json or part in record.metrics_json for part in quoted)
            if spelled and _has(record, name):
                del left[name]
    return set(names) - left.keys()


def _quoted(name: str) -> set[str]:
    """JSON spellings of a name and of each key that a dotted name begins with."""
    parts = {name, *(name[:at] for at, letter in enumerate(name) if letter == ".")}
    return {json.dumps(part, ensure_ascii=plain) for part in parts for plain in (True, False)}


def _has(record: Record, name: str) -> bool:
    if name in record.metrics:
        return True
    try:
        record.hyper.dotted(name)
    except KeyError:
        return False
    return True


class LazyRecords:
    """Rows as records, each made on access, newest first."""

    def __init__(self, rows: Sequence[Cells], record: Callable[[Cells], Record]) -> None:
        self._rows = rows
        self._record = record

    def __len__(self) -> int:
        return len(self._rows)

    def __reversed__(self) -> Iterator[Record]:
        return map(self._record, reversed(self._rows))
