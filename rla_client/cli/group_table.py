"""Table of `rla ls --group`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_client.cli.output import print_rows, say, say_aside
from rla_client.contract.errors import ArgumentError
from rla_client.database.clock import clock
from rla_client.database.text.safe_text import clean

if TYPE_CHECKING:
    from rla_client.database.compare.group_table import GroupTable
    from rla_client.database.compare.groups import Group
    from rla_client.database.records.record import Record

MOST_NAMED = 3  # groups that a line names


def check_group(columns: str | None, sort: str) -> None:
    """Refuse options that a table of groups does not support."""
    if columns is not None or sort != "time":
        raise ArgumentError(
            "--group has columns and an order of its own\nhint: leave out --columns and --sort"
        )


def print_groups(records: list[Record], by: list[str], asked: list[str], form: tuple[bool, bool]) -> None:
    """Print one line per group of runs; `form` is (as JSON, as CSV)."""
    from rla_client.database.compare.best_group import less_is_better, too_few_seeds
    from rla_client.database.compare.group_table import tabulate_groups
    from rla_client.database.compare.groups import group_name

    if not records and not any(form):
        say("no runs match")
        return
    table = tabulate_groups(records, by, asked, clock())
    if any(form):
        print_rows(*value_rows(table), as_json=form[0], as_csv=form[1])
        return
    rows = []
    for same in table.rows:
        row = [*same[0].texts, same[0].states.total(), _states(same[0])]
        rows.append(row + [_mean_text(group) for group in same if table.metrics])
    print_rows([*table.by, "runs", "states", *table.metrics], rows, as_json=False, as_csv=False)
    if table.metrics:
        mixed = set().union(*(same[0].tables for same in table.rows if len(same[0].tables) > 1))
        if mixed:
            say_aside(f"runs of {len(mixed)} tables averaged together; --group table,… keeps them apart")
        say_aside("(mean of the last values over runs ± 95 % interval; another metric: -m METRIC)")
        say_unequal(table)
        first = [same[0] for same in table.rows]
        found = too_few_seeds(first, table.by, minimize=less_is_better(table.metrics[0]))
        if found is not None:
            say_aside(found.sentence(*(group_name(table.by, first[at]) for at in (found.best, found.next))))


def value_rows(table: GroupTable) -> tuple[list[str], list[list[object]]]:
    """Names and rows of a table of groups for programs: means, half intervals, counts."""
    from rla_client.database.compare.mean_interval import mean_and_interval

    rows = []
    for same in table.rows:
        row = [*same[0].values, same[0].states.total(), _states(same[0])]
        for group in same if table.metrics else ():
            row += [*mean_and_interval(group.numbers), len(group.numbers)]
        rows.append(row)
    heads = [[name, f"{name}:ci95", f"{name}:runs"] for name in table.metrics]
    return [*table.by, "runs", "states", *(head for part in heads for head in part)], rows


def say_unequal(table: GroupTable) -> None:
    """Print which groups average runs of different length."""
    if unequal := table.of_unequal_length():
        shown = "; ".join(unequal[:MOST_NAMED]) + ("; …" if len(unequal) > MOST_NAMED else "")
        say_aside(f"runs of different length are averaged in {len(unequal)} group(s): {shown}")


def _states(group: Group) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(group.states.items()))


def _mean_text(group: Group) -> str | None:
    from rla_client.database.compare.mean_interval import mean_and_interval

    mean, interval = mean_and_interval(group.numbers)
    if mean is None:
        return None
    text = clean(mean) if interval is None else f"{clean(mean)} ± {interval:.2g}"
    lacks_some = group.states.total() > len(group.numbers)
    return text + (f" ({len(group.numbers)} run(s))" if lacks_some else "")
