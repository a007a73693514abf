"""Scan of a catalogue by a filter.

Parameters and metrics are read by `json_values`. Fields of a run, and runs with a state that this machine
may know better, are read by `RowView`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla_client.contract.run_file import LIVE_STATES
from rla_client.database.catalogue import COLUMNS, Catalogue, record_of
from rla_client.database.filter.filter_language import Where
from rla_client.database.filter.json_values import parameter_or_metric
from rla_client.database.filter.name_completion import LazyRecords, spell
from rla_client.database.records.liveness import with_live_states
from rla_client.database.records.record import Record
from rla_client.database.records.row_view import ALIASES, FIELDS, RowView

Cells = tuple[Any, ...]  # a row of the catalogue
_TEXTS = ("table_name", "idx", "hyper", "metrics")  # columns of `Catalogue.texts`
_HYPER, _METRICS, _STATE = (COLUMNS.index(name) for name in ("hyper", "metrics", "state"))
FEW = 10  # if at most one in FEW runs passes, runs are read one by one
_FIELDS = frozenset((*FIELDS, *ALIASES))


def fitting(  # noqa: PLR0913 - the arguments of `Database.records`
    data_root: Path,
    catalogue: Catalogue,
    test: Where,
    now: float,
    *,
    table: str | None,
    since: float | None,
    limit: int | None,
) -> list[Record]:
    """Runs that pass a filter, oldest first.

    Args:
        data_root: of the database.
        catalogue: as of the last refresh.
        test: the filter; its names may be shortened.
        now: Unix seconds.
        table: only this task table.
        since: only runs that began at or after these Unix seconds.
        limit: only the newest so many.

    Raises:
        UnknownNameError: no run has one of the names.
    """
    if _FIELDS.isdisjoint(test.names):
        texts = catalogue.texts(table, since=since)
        spell(test, LazyRecords(texts, _record_of_texts))
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
    spell(test, LazyRecords(rows, record_of))
    live = [record_of(row) for row in rows if row[_STATE] is None or row[_STATE] in LIVE_STATES]
    known = {(one.table, one.index): one for one in with_live_states(data_root, live, now)} if live else {}
    view, chosen = _Scanned(_HYPER, _METRICS, now), []
    for row in rows:
        view.row = row
        record = known.get(row[:2])
        if test(view if record is None else RowView(record, now)):
            chosen.append(record or record_of(row))
    return chosen if limit is None else chosen[-limit:]


def _record_of_texts(row: Cells) -> Record:
    known = dict(zip(_TEXTS, row, strict=True))
    return record_of(tuple("" if name == "kinds" else known.get(name) for name in COLUMNS))


class _Scanned(dict[str, Any]):
    """View of a row by name for a filter, which uses only `get`.

    Args:
        hyper: position of the hyper-parameters in a row.
        metrics: position of the metrics; fields of a run need a row in the order of `COLUMNS`.
        now: Unix seconds.
    """

    row: Cells

    def __init__(self, hyper: int, metrics: int, now: float) -> None:
        self._hyper, self._metrics, self._now = hyper, metrics, now

    def get(self, name: str, default: object = None) -> object:
        """See `RowView.get`."""
        row = self.row
        if name in _FIELDS:
            return RowView(record_of(row), self._now).get(name, default)
        return parameter_or_metric(row[self._hyper], row[self._metrics], name, default)
