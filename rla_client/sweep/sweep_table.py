"""Printed tables of a sweep.

They list counts, runs and trials (the best: `results.best_trials`).
"""

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
    """How many runs are in each state; those that wait in Slurm as queued, if there are any."""
    found = counts(journal.runs)
    queued = sum(map(journal.is_queued, journal.runs.values()))
    return {**found, RUNNING: found[RUNNING] - queued, QUEUED: queued} if queued else found


def summary(journal: Journal, driver: int | None) -> str:
    """How many runs are in which state, and who looks after them."""
    told = ", ".join(f"{count} {state}" for state, count in shown_counts(journal).items() if count)
    number = len(journal.runs)
    by = ""
    if driver is None and any(run.state not in OVER for run in journal.runs.values()):
        ended = sum(run.state == RUNNING and journal.has_ended(run) for run in journal.runs.values())
        by = "; nobody drives it" + (f", and {ended} of those running have ended since" if ended else "")
    return f"sweep {journal.name}: {number} run{'' if number == 1 else 's'}: {told or 'none planned yet'}{by}"


def rows(values: MetricValues, now: float) -> list[dict[str, Any]]:
    """One row for each run: those that run first, then what went wrong, waits and is done."""
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
    """Rows as a table, with what they have; the first `most` of them."""
    names = list(dict.fromkeys(name for row in found for name in row))
    shown = found if most is None else found[:most]
    text = table_text(names, [[_shown(row, name) for name in names] for row in shown], room)
    more = len(found) - len(shown)
    return f"{text}\n… and {more} more" if more > 0 else text


def reasons(journal: Journal) -> list[str]:
    """Why runs did not finish so far, each reason once with its runs."""
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
