"""View of a record by names of fields, hyper-parameters or metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rla_client.database.records.record import Record
from rla_client.database.records.told_fields import TOLD_FIELDS
from rla_client.database.run_parts import PARTS, parts_of

FIELDS = (
    "index", "run", "table", "time", "host", "state", "time_step", "duration", "tags", "note", "kinds",
    "problems", "likely", "likely_value", "display_name",
)  # fmt: skip
ALIASES = {  # names in `ls`, its JSON, `show --json` and `Database.runs`; a run's own names take precedence
    "step": "time_step",
    "time-step": "time_step",
    "took": "duration",
    "duration_s": "duration",
    "began": "time",
    "opened": "time",
    "last": "last_row",
    "items": "kinds",
    "metric": "likely",
    "value": "likely_value",
    "name": "display_name",
    **{name: name for name in (*(one.name for one in TOLD_FIELDS), PARTS)},
}


class RowView(Mapping[str, Any]):
    """A record by names of fields, hyper-parameters, metrics and then aliases, for filters and sorting."""

    __slots__ = ("_now", "_record")

    def __init__(self, record: Record, now: float) -> None:
        self._record = record
        self._now = now

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        record = self._record
        field = self.field(name)
        if field in _FIELD_OF:
            return _FIELD_OF[field](record, self._now)
        if field == PARTS:
            return "; ".join(parts_of(record, self._now)) or None
        if field is not None:
            return record.told.get(field)
        try:
            return record.hyper.dotted(name)
        except KeyError:
            return record.metrics[name]

    def field(self, name: str) -> str | None:
        """The field that a name means for this run; None for a hyper-parameter or a metric."""
        if name in _FIELD_OF:
            return name
        if name not in ALIASES or name in self._record.metrics:
            return None
        try:
            self._record.hyper.dotted(name)
        except KeyError:
            return ALIASES[name]
        return None

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
    "display_name": lambda record, _: record.display_name,
    "kinds": lambda record, _: list(record.kinds),
    "likely": lambda record, _: record.likely or None,
    "likely_value": lambda record, _: record.likely_value,
    "problems": lambda record, _: list(record.problems),
}
