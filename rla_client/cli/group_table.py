"""The table of `rla ls --group`: a line for each group of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_client.cli.output import print_rows, say, say_aside
from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.records.likely_metric import likely_of
from rla_client.database.text.safe_text import clean

if TYPE_CHECKING:
    from rla_client.database.compare.groups import Group
    from rla_client.database.records.record import Record


def check_group(columns: str | None, sort: str) -> None:
    """Be sure that nothing was asked for which a table of groups cannot do."""
    if columns is not None or sort != "time":
        raise ArgumentError(
            "--group has columns and an order of its own\nhint: leave out --columns and --sort"
        )


def print_groups(records: list[Record], by: list[str], asked: list[str], form: tuple[bool, bool]) -> None:
    """One line a group of runs; `form` is (as JSON, as CSV)."""
    from rla_client.database.compare.best_group import less_is_better, too_few_seeds
    from rla_client.database.compare.groups import group_name, group_runs, mean_and_interval
    from rla_client.database.filter.name_completion import full_metrics, full_names

    if not records and not any(form):
        say("no runs match")
        return
    full = full_names(set(by), records)
    by = [full[name] for name in by]
    likely = likely_of(records)
    chosen = full_metrics(asked, records) or ([likely] if likely else [])
    metrics: list[str | None] = [*chosen] or [None]  # without any, only runs and states
    groups = [group_runs(records, by, name, clock()) for name in metrics]
    rows = []
    for same in zip(*groups, strict=True):
        states = ", ".join(f"{count} {state}" for state, count in sorted(same[0].states.items()))
        row = [*(same[0].values if any(form) else same[0].texts), same[0].states.total(), states]
        for group in same if chosen else ():
            mean, interval = mean_and_interval(group.numbers)
            row += [mean, interval, len(group.numbers)] if any(form) else [_mean_text(mean, interval, group)]
        rows.append(row)
    heads = [[name, f"{name}:ci95", f"{name}:runs"] if any(form) else [name] for name in chosen]
    names = [*by, "runs", "states", *(head for part in heads for head in part)]
    print_rows(names, rows, as_json=form[0], as_csv=form[1])
    if not any(form) and chosen:
        say_aside("(mean of the last values over runs ± 95 % interval; another metric: -m METRIC)")
        found = too_few_seeds(groups[0], by, minimize=less_is_better(chosen[0]))
        if found is not None:
            names = [group_name(by, groups[0][place]) for place in (found.best, found.next)]
            say_aside(found.sentence(*names))


def _mean_text(mean: float | None, interval: float | None, group: Group) -> str | None:
    if mean is None:
        return None
    text = clean(mean) if interval is None else f"{clean(mean)} ± {interval:.2g}"
    lacks_some = group.states.total() > len(group.numbers)
    return text + (f" ({len(group.numbers)} run(s))" if lacks_some else "")
