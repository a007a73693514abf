"""Printed tables of a sweep's runs or trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla_client.contract.text.spelling import listed
from rla_client.database.text.numbers import plain
from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import table_text
from rla_client.sweep.journal import Journal
from rla_client.sweep.results import MetricValues, named_column, with_parameters
from rla_client.sweep.run_state import (
    DROPPED,
    FAILED,
    FINISHED,
    OVER,
    RUNNING,
    STOPPED,
    WAITING,
    SweepRun,
    counts,
)

SHOWN_FIRST = (RUNNING, FAILED, STOPPED, WAITING, FINISHED, DROPPED)
QUEUED = "queued"
_SIGNIFICANT = 6


def shown_counts(journal: Journal) -> dict[str, int]:
    """Number of runs in each state, with those in Slurm's queue counted as queued."""
    found = counts(journal.runs)
    queued = sum(map(journal.is_queued, journal.runs.values()))
    return {**found, RUNNING: found[RUNNING] - queued, QUEUED: queued} if queued else found


def summary(journal: Journal, driver: int | None) -> str:
    """Line with the number of runs in each state, and a note if no driver supervises them."""
    text = ", ".join(f"{count} {state}" for state, count in shown_counts(journal).items() if count)
    number = len(journal.runs)
    by = ""
    if driver is None and any(run.state not in OVER for run in journal.runs.values()):
        ended = sum(run.state == RUNNING and journal.has_ended(run) for run in journal.runs.values())
        by = "; nobody drives it" + (f", and {ended} of those running have ended since" if ended else "")
    return f"sweep {journal.name}: {number} run{'' if number == 1 else 's'}: {text or 'none planned yet'}{by}"


def rows(values: MetricValues, now: float) -> list[dict[str, Any]]:
    """One row per run: running ones first, then failed, stopped, waiting and finished ones."""
    journal, metric = values.journal, values.metric
    found = []

    def place(run: SweepRun) -> tuple[int, float]:
        return SHOWN_FIRST.index(run.state), -run.ended if run.state in OVER else run.number

    for run in sorted(journal.runs.values(), key=place):
        queued = journal.is_queued(run)
        row: dict[str, Any] = {
            "run": run.number,
            "state": QUEUED if queued else run.state,
            "took": None if queued else run.took(now),
            "tries": run.attempts,
        }
        if metric is not None:
            row[named_column(metric.name, "metric", row)] = values.of(run)
        found.append(with_parameters(row, run.parameters))
    return found


def table(found: list[dict[str, Any]], most: int | None = None, room: int | None = None) -> str:
    """The first `most` rows as a table, with all their columns."""
    names = list(dict.fromkeys(name for row in found for name in row))
    shown = found if most is None else found[:most]
    text = table_text(names, [[_shown(row, name) for name in names] for row in shown], room)
    more = len(found) - len(shown)
    return f"{text}\n… and {more} more" if more > 0 else text


def reasons(journal: Journal) -> list[str]:
    """Reasons of unfinished runs, one line per reason with its runs."""
    found: dict[str, list[int]] = {}
    for run in journal.runs.values():
        if run.reason and run.state != FINISHED:
            found.setdefault(run.reason, []).append(run.number)
    return [
        f"run{'s' * (len(numbers) > 1)} {listed(map(str, numbers))}: {clean(reason)}"
        for reason, numbers in found.items()
    ]


def _shown(row: Mapping[str, Any], name: str) -> object:
    value = row.get(name)
    if name == "took" and value is not None:
        minutes, rest = divmod(int(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
    value = plain(value)
    return float(f"{value:.{_SIGNIFICANT}g}") if isinstance(value, float) else value
