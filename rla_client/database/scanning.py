"""A filter over all rows of the catalogue, without making a `Record` of each: of 100,000 few are wanted.

A hyper-parameter or a metric is cut out of the JSON text that the catalogue keeps, where that is flat; fields
of a run, nested parameters, and runs whose state this machine may know better go by `RowView`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from rla_client.contract.run_file import LIVE_STATES
from rla_client.database.catalogue import COLUMNS, Catalogue, record_of
from rla_client.database.choosing import spell
from rla_client.database.live import with_live_states
from rla_client.database.records import Record
from rla_client.database.rows import ALIASES, FIELDS, RowView
from rla_client.database.where import Where
from rla_client.run.hyper_params import HyperParams

Row = tuple[Any, ...]
_HYPER, _METRICS, _STATE = (COLUMNS.index(name) for name in ("hyper", "metrics", "state"))
_TEXTS = ("table_name", "idx", "hyper", "metrics")  # what `Catalogue.texts` gives
FEW = 10  # runs are read one by one where no more than one in so many passes
_NOTHING = object()
_FIELDS = frozenset((*FIELDS, *ALIASES))
_decode = json.JSONDecoder(object_hook=HyperParams).raw_decode


def fitting(  # noqa: PLR0913 - what `Database.records` takes
    data_root: Path,
    catalogue: Catalogue,
    test: Where,
    now: float,
    *,
    table: str | None,
    since: float | None,
    limit: int | None,
) -> list[Record]:
    """The runs that pass a filter, oldest first.

    Args:
        data_root: of the database.
        catalogue: as of the last refresh.
        test: its names may be short ones.
        now: Unix seconds.
        table: only this task table.
        since: only runs that began at or after these Unix seconds.
        limit: only the newest so many.

    Raises:
        UnknownNameError: no run has one of the names.
    """
    if _FIELDS.isdisjoint(test.names):
        texts = catalogue.texts(table, since=since)
        spell(test, _Records(texts, _record_of_texts))
        if _FIELDS.isdisjoint(test.full.values()):
            view = _Scanned(_TEXTS.index("hyper"), _TEXTS.index("metrics"), now)
            keys = []
            for row in texts:
                view.row = row
                if test(view):
                    keys.append(row[:2])
            keys = keys if limit is None else keys[-limit:]
            if len(keys) * FEW > len(texts):
                wanted = set(keys)
                found = [record_of(row) for row in catalogue.rows(table, since=since) if row[:2] in wanted]
            else:
                found = catalogue.chosen(keys)
            return with_live_states(data_root, found, now)
    rows = catalogue.rows(table, since=since)
    spell(test, _Records(rows, record_of))
    told = [record_of(row) for row in rows if row[_STATE] is None or row[_STATE] in LIVE_STATES]
    known = {(one.table, one.index): one for one in with_live_states(data_root, told, now)} if told else {}
    view, chosen = _Scanned(_HYPER, _METRICS, now), []
    for row in rows:
        view.row = row
        record = known.get(row[:2])
        if test(view if record is None else RowView(record, now)):
            chosen.append(record or record_of(row))
    return chosen if limit is None else chosen[-limit:]


def _record_of_texts(row: Row) -> Record:
    known = dict(zip(_TEXTS, row, strict=True))
    return record_of(tuple("" if name == "kinds" else known.get(name) for name in COLUMNS))


class _Records(Sequence[Record]):
    """Rows as records, each made when it is looked at."""

    def __init__(self, rows: Sequence[Row], record: Callable[[Row], Record]) -> None:
        self._rows = rows
        self._record = record

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return list(map(self._record, self._rows[place]))
        return self._record(self._rows[place])

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, self._rows)

    def __reversed__(self) -> Iterator[Record]:
        return map(self._record, reversed(self._rows))


class _Scanned(dict[str, Any]):
    """A row by name, as far as a filter asks: `get` alone.

    Args:
        hyper: where in a row the hyper-parameters are.
        metrics: likewise; a field of the run asks for a row in the order of `COLUMNS`.
        now: Unix seconds.
    """

    row: Row

    def __init__(self, hyper: int, metrics: int, now: float) -> None:
        self._hyper, self._metrics, self._now = hyper, metrics, now

    def get(self, name: str, default: object = None) -> object:
        """As `RowView.get`."""
        row = self.row
        if name in _FIELDS:
            return RowView(record_of(row), self._now).get(name, default)
        return parameter_or_metric(row[self._hyper], row[self._metrics], name, default)


def parameter_or_metric(hyper: str | None, metrics: str | None, name: str, default: object = None) -> object:
    """What `RowView.get` gives for a name that is not a field, out of the JSON texts of a record."""
    found = value_in(hyper, name)
    if found is _NOTHING:
        found = value_in(metrics, name, nested=False)
    return default if found is _NOTHING else found


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return f"{json.dumps(name)}:"


def value_in(text: str | None, name: str, *, nested: bool = True) -> object:
    """The value of a name in JSON text of `records.to_json`; `_NOTHING` without one.

    A quote inside a text is escaped, so what follows a brace or a comma and looks like a key is one.
    """
    if not text:
        return _NOTHING
    key = _spelled(name)
    at = text.find(key)
    if at < 0 and not (nested and "." in name):
        return _NOTHING
    if text.find("{", 1) >= 0:
        whole = json.loads(text, object_hook=HyperParams)
        try:
            return whole.dotted(name) if nested else whole[name]
        except KeyError:
            return _NOTHING
    while at > 0 and text[at - 1] not in "{,":
        at = text.find(key, at + 1)
    return _decode(text, at + len(key))[0] if at > 0 else _NOTHING
