"""Names that a page offers as columns, filters or metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from rla_client.database.clock import clock
from rla_client.database.compare.run_differences import differing_keys
from rla_client.database.curves.rank_tables import Ranks, names_of_ranks
from rla_client.database.records.likely_metric import numeric
from rla_client.database.records.record import Record
from rla_client.database.records.row_view import ALIASES, FIELDS, RowView
from rla_client.web.run_registry import PageRun, Site

MAX_TEXT = 200  # characters of an offered value
MAX_VALUES = 30  # offered for one name


def differing(site: Site, numbers: object) -> list[str]:
    """Hyper-parameters in which some runs differ."""
    return differing_keys([entry.record for entry in site.chosen(numbers)])[0]


def names(site: Site) -> dict[str, Any]:
    """Names for columns and filters: fields, hyper-parameters, metrics; and some of their values."""
    records = [entry.record for entry in site.entries()]
    hyper: dict[str, Counter[str]] = {}
    for record in _different(records, lambda record: record.hyper_json):
        for name, value in record.hyper.flat().items():
            counter = hyper.setdefault(name, Counter())
            if len(counter) < MAX_VALUES * 4 and isinstance(value, str | int | float | bool):
                counter[repr(value)[:MAX_TEXT]] += 1
    metrics = Counter(
        name
        for record in _different(records, lambda record: record.metrics_json)
        for name in numeric(record.metrics)
    )
    now = clock()
    values = {name: sorted(counter)[:MAX_VALUES] for name, counter in hyper.items()}
    for name in ("state", "table", "host"):
        values[name] = sorted({repr(RowView(record, now)[name]) for record in records})[:MAX_VALUES]
    values["tags"] = sorted({repr(tag) for record in records for tag in record.tags})[:MAX_VALUES]
    return {"fields": [*FIELDS, *ALIASES], "hyper": list(hyper), "metrics": list(metrics), "values": values}


def _different(records: Iterable[Record], text: Callable[[Record], Hashable]) -> list[Record]:
    """One record for each text: the runs of a sweep share few texts."""
    return list({text(record): record for record in records}.values())


def metric_names(entries: Sequence[PageRun], ranks: Ranks | None = None) -> dict[str, int]:
    """Numeric columns in the order of the newest run's file, with the number of runs that have each.

    Args:
        entries: the runs.
        ranks: the ranks that count, see `parse_ranks`.
    """
    counts: Counter[str] = Counter()
    for entry in reversed(entries):
        counts.update(names_of_ranks(numeric(entry.record.metrics), ranks))
    return dict(counts)
