"""The list of runs of a page.

The answer is a list for each column, in the order of the run numbers. Numbers that JSON cannot represent are
the texts `nan`, `inf`, `-inf`.
"""

from __future__ import annotations

from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.filter.filter_language import Where
from rla_client.database.filter.name_completion import spell
from rla_client.database.records.record import Record
from rla_client.database.records.row_view import RowView
from rla_client.database.run_parts import parts_of
from rla_client.web.page_json import sent
from rla_client.web.run_registry import Site


def rows(site: Site, since: int) -> dict[str, Any]:
    """The list's columns of the runs that changed after a version."""
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
    """The first problem with a run's files, or with one of its parts."""
    found = [*record.problems, *(f"part {line}" for line in parts_of(record, now)[1:])]
    return found[0] if found else None


def fitting(site: Site, text: object) -> list[int]:
    """Numbers of the runs that match a filter.

    Raises:
        ArgumentError: the filter has an error.
    """
    if not isinstance(text, str):
        raise ArgumentError("a filter is a text")
    test = Where(text)
    entries = site.entries()
    records = [entry.record for entry in entries]
    spell(test, records)
    now = clock()
    return [entry.number for entry in entries if test(RowView(entry.record, now))]
