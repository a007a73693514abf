"""A run as a row of named values, for filters, sorting and columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rla_client.database.records import Record

FIELDS = (
    "index", "run", "table", "time", "host", "state", "time_step", "duration", "tags", "note", "kinds",
    "problems",
)  # fmt: skip

ALIASES = {  # what `ls`, its JSON, `show --json` and `Database.runs` call a field, where no run has it itself
    "step": "time_step",
    "time-step": "time_step",
    "took": "duration",
    "duration_s": "duration",
    "began": "time",
    "opened": "time",
}


class RowView(Mapping[str, Any]):
    """A record by field, hyper-parameter and metric names, then aliases, for filters and sorting."""

    __slots__ = ("_now", "_record")

    def __init__(self, record: Record, now: float) -> None:
        self._record = record
        self._now = now

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        record = self._record
        if name in _FIELD_OF:
            return _FIELD_OF[name](record, self._now)
        try:
            return record.hyper.dotted(name)
        except KeyError:
            pass
        if name in ALIASES and name not in record.metrics:
            return _FIELD_OF[ALIASES[name]](record, self._now)
        return record.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(FIELDS), **self._record.hyper.flat(), **self._record.metrics})

    def __len__(self) -> int:
        return len(list(iter(self)))


_FIELD_OF: dict[str, Callable[[Record, float], Any]] = {
    "index": lambda record, _: record.index,
    "run": lambda record, _: record.date,
    "table": lambda record, _: record.table,
    "time": lambda record, _: record.opened,
    "host": lambda record, _: record.host,
    "state": lambda record, now: record.shown_state(now),
    "time_step": lambda record, _: record.time_step,
    "duration": lambda record, _: record.duration_s,
    "tags": lambda record, _: list(record.tags),
    "note": lambda record, _: record.note,
    "kinds": lambda record, _: list(record.kinds),
    "problems": lambda record, _: list(record.problems),
}
