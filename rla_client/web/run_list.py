"""The list of runs of a page.

It goes out by column, one list a name, in the order of the run numbers beside it. Numbers that JSON cannot
carry go as the texts `nan`, `inf`, `-inf`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.compare.group_key import group_text
from rla_client.database.compare.run_differences import differing_keys
from rla_client.database.curves.rank_tables import Ranks, names_of_ranks
from rla_client.database.filter.filter_language import Where
from rla_client.database.filter.name_completion import full_names, spell
from rla_client.database.records.likely_metric import numeric
from rla_client.database.records.record import Record
from rla_client.database.records.row_view import ALIASES, FIELDS, RowView
from rla_client.database.run_parts import parts_of
from rla_client.web.curves import extremes
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import is_texts
from rla_client.web.run_registry import PageRun, Site

MAX_COLUMNS = 200  # asked for at once
MAX_TEXT = 200  # characters of one that is offered
MAX_VALUES = 30  # of one name, offered by the completion
_EXTREME = re.compile(r"(?P<which>max|min)\((?P<metric>.+)\)")


def rows(site: Site, since: int) -> dict[str, Any]:
    """What the list shows of the runs that changed after a version."""
    version = site.look(wait=True)
    now = clock()
    entries = site.entries(since)
    there = [entry for entry in entries if not entry.gone]
    records = [entry.record for entry in there]
    return {
        "boot": site.boot,
        "version": version,
        "now": now,
        "databases": [str(database.data_root) for database in site.databases],
        "problems": [f"{site.databases[place].data_root}: {text}" for place, text in site.problems.items()],
        "gone": [entry.number for entry in entries if entry.gone],
        "number": [entry.number for entry in there],
        "place": [entry.place for entry in there],
        "table": [record.table for record in records],
        "index": [record.index for record in records],
        "state": [entry.state for entry in there],
        "time": [record.opened for record in records],
        "step": [sent(record.time_step) for record in records],
        "took": [sent(record.duration_s) for record in records],
        "host": [record.host for record in records],
        "tags": [record.tags for record in records],
        "note": [record.note for record in records],
        "display_name": [record.display_name for record in records],
        "problem": [_problem(record, now) for record in records],
        "parts": ["; ".join(parts_of(record, now)) or None for record in records],
        "tracked": [dict(record.tracked) for record in records],
        "metric": [record.likely for record in records],
        "value": [sent(record.likely_value) for record in records],
    }


def _problem(record: Record, now: float) -> str | None:
    """The first thing that is wrong with a run's files, or with a part of it."""
    found = [*record.problems, *(f"part {line}" for line in parts_of(record, now)[1:])]
    return found[0] if found else None


def column_values(site: Site, names: object, numbers: object, group: object = None) -> dict[str, list[Any]]:
    """Values of some columns for some runs, in their order; under `texts` those by which runs are grouped.

    Args:
        site: whose runs.
        names: fields, hyper-parameters, metrics (their last value), `max(METRIC)`, `min(METRIC)`.
        numbers: of the runs; None: all, by number.
        group: those of the names that runs are grouped by.
    """
    if not is_texts(names) or len(names) > MAX_COLUMNS:
        raise ArgumentError(f"a list of at most {MAX_COLUMNS} names is needed")
    entries = site.entries() if numbers is None else site.chosen(numbers)
    now = clock()
    plain = [name for name in names if not _EXTREME.fullmatch(name)]
    full = full_names(set(plain), [entry.record for entry in entries], lenient=True)
    grouped = {name for name in plain if is_texts(group) and name in group}
    found: dict[str, list[Any]] = {name: [] for name in plain}
    texts: dict[str, list[Any]] = {name: [] for name in grouped}
    for entry in entries:  # run by run: large parameters are not kept parsed
        view = RowView(entry.record, now)
        for name, values in found.items():
            value = view.get(full[name])
            values.append(sent(value))
            if name in grouped:
                texts[name].append(group_text(value))
    for name in names:
        if match := _EXTREME.fullmatch(name):
            which = match["which"] == "max"
            ends = extremes(site, entries, match["metric"])
            found[name] = [None if pair is None else pair[which] for pair in ends]
    return {
        "number": [entry.number for entry in entries],
        "values": [found[name] for name in names],
        "texts": [texts.get(name) for name in names],
    }


def fitting(site: Site, text: object) -> list[int]:
    """Numbers of the runs that pass a filter; ArgumentError where it is not understood."""
    if not isinstance(text, str):
        raise ArgumentError("a filter is a text")
    test = Where(text)
    entries = site.entries()
    records = [entry.record for entry in entries]
    spell(test, records)
    now = clock()
    return [entry.number for entry in entries if test(RowView(entry.record, now))]


def differing(site: Site, numbers: object) -> list[str]:
    """Hyper-parameters that are not the same in some runs."""
    return differing_keys([entry.record for entry in site.chosen(numbers)])[0]


def names(site: Site) -> dict[str, Any]:
    """What can be a column or stand in a filter: fields, hyper-parameters, metrics; some of their values."""
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
    """One record for each text; ten thousand runs of a sweep have few."""
    return list({text(record): record for record in records}.values())


def metric_names(entries: Sequence[PageRun], ranks: Ranks | None = None) -> dict[str, int]:
    """Columns with numbers, in the order of the newest run's file, and how many runs have each.

    Args:
        entries: the runs.
        ranks: which of their ranks, see `parse_ranks`.
    """
    counts: Counter[str] = Counter()
    for entry in reversed(entries):
        counts.update(names_of_ranks(numeric(entry.record.metrics), ranks))
    return dict(counts)
