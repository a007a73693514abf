"""The table of a sweep: counts, best trials, runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from rla_client.contract.text.spelling import listed
from rla_client.database.compare.best_group import TooFewSeeds, too_few_seeds
from rla_client.database.compare.groups import Group
from rla_client.database.text.numbers import plain
from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import table_text
from rla_client.sweep.journal import Journal
from rla_client.sweep.results import Values, trial_value, trials_of
from rla_client.sweep.run_state import (
    DROPPED,
    FAILED,
    FINISHED,
    OVER,
    RUNNING,
    STOPPED,
    WAITING,
    RunState,
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


def best(values: Values) -> list[dict[str, Any]]:
    """The best trials by the mean of their finished runs, the best first, with what these have in common."""
    metric = values.metric
    if metric is None:
        return []
    found = []
    for trial, runs in trials_of(values.journal.runs).items():
        there = values.of_finished(runs)
        mean, half = trial_value([value for _, value in there])
        if mean is not None:
            row: dict[str, Any] = {"trial": trial, "±": half, "runs": len(there)}
            row = {"trial": trial, _named(metric.name, "metric", row): mean, **row}
            same = {
                name: value
                for name, value in runs[0].parameters.items()
                if all(run.parameters.get(name) == value for run in runs)
            }
            rank = (-mean if metric.maximize else mean) if math.isfinite(mean) else math.inf
            found.append((rank, _with_parameters(row, same)))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def undecided(values: Values) -> tuple[int, int, TooFewSeeds] | None:
    """The best two trials, where their seeds are too few to tell them apart."""
    if values.metric is None:
        return None
    trials = trials_of(values.journal.runs)
    groups = [
        Group((trial,), numbers=[value for _, value in values.of_finished(runs)])
        for trial, runs in trials.items()
    ]
    found = too_few_seeds(groups, ["trial"], minimize=not values.metric.maximize)
    return None if found is None else ([*trials][found.best], [*trials][found.next], found)


def rows(values: Values, now: float) -> list[dict[str, Any]]:
    """One row for each run: those that run first, then what went wrong, waits and is done."""
    journal, metric = values.journal, values.metric
    found = []

    def place(run: RunState) -> tuple[int, float]:
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
            row[_named(metric.name, "metric", row)] = values.of(run)
        found.append(_with_parameters(row, run.parameters))
    return found


def _named(name: str, kind: str, taken: Collection[str]) -> str:
    """A column's name; where another column has it, with its kind before it."""
    return f"{kind}.{name}" if name in taken else name


def _with_parameters(row: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **{_named(name, "parameters", row): value for name, value in parameters.items()}}


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
