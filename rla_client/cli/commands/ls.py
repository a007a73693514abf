"""`rla ls`: list of runs."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.cli.completion import complete_parameters, complete_sort, complete_table
from rla_client.cli.group_table import check_group, print_groups
from rla_client.cli.open_database import open_database
from rla_client.cli.options import MOMENT, MOST_SHOWN, Archived, AsCsv, AsJson, Columns, DataRoot, Metrics
from rla_client.cli.output import print_rows, say, say_aside, teller
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import ArgumentError
from rla_client.contract.text.duration_text import duration_text
from rla_client.database.clock import clock
from rla_client.database.records.record import MOMENTS
from rla_client.database.records.row_view import RowView
from rla_client.database.run_parts import parts_of
from rla_client.database.text.numbers import plain
from rla_client.database.text.safe_text import clean
from rla_client.database.text.tag_text import tags_text
from rla_client.database.tree.data_root import NoRunsYetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rla_client.database.records.record import Record


TERMINAL_LIMIT = 20  # rows of `ls` on a terminal; a pipe gets all
LIGHT_COLUMNS = frozenset({"time", "run", "state", "step", "time-step", "took", "host", "table"})
BROKEN_OFF = frozenset({"failed", "killed", "interrupted"})  # states with a reason to show
WAITING = frozenset({"waiting", "silent"})  # states of a run that no agent serves


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, ls, LOOK, "rla ls cartpole --where 'lr == 0.001'", "rla ls --group lr -m return")


@takes_runs(argument=False)
def ls(
    tables: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Only this task table.", autocompletion=complete_table),
    ] = None,
    *,
    chosen: Selection,
    sort: Annotated[
        str,
        typer.Option(
            "--sort", "-s", help="Column to sort by; -NAME for descending.", autocompletion=complete_sort
        ),
    ] = "time",
    columns: Columns = None,
    metric: Metrics = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="One line per value of these parameters: runs, states, mean of the metric ± 95 % interval.",
            autocompletion=complete_parameters,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, max=MOST_SHOWN, help="How many, the newest ones; 0 for all."),
    ] = None,
    archived: Archived = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List runs, newest last: state, time-step, last value of a metric, tracked hyper-parameters."""
    from rla_client.database.filter.name_completion import full_metrics

    chosen = replace(chosen, table=_one_table(tables, chosen.table))
    machine = as_json or as_csv
    try:
        database = open_database(data_root, archived=archived)
    except NoRunsYetError as error:
        teller(as_json=machine)(str(error))
        if machine:
            print_rows(["run"], [], as_json=as_json, as_csv=as_csv)
        return
    if group is not None:
        check_group(columns, sort)
        records = chosen.records(database)[-(limit or 0) :]
        print_groups(records, _split(group) or [], metric or [], (as_json, as_csv))
        return
    if limit is None:
        limit = TERMINAL_LIMIT if sys.stdout.isatty() and not machine else 0
    filtered = bool(chosen.fitting or chosen.where or chosen.commit)
    early = limit if limit and sort == "time" and not filtered else None
    light = not (machine or columns or metric) and sort.removeprefix("-") in LIGHT_COLUMNS
    records = (
        chosen.records(database, light=light)
        if early is None
        else database.records(chosen.table, None, chosen.since, limit=early, light=light)
    )
    now = clock()
    wanted, sort = _full_columns(records, _split(columns), sort)
    metric = full_metrics(metric or [], records)
    records = _sorted(records, sort, now)
    every = len(records)
    if early is not None and every == early:
        every = database.count(chosen.table, chosen.since)
    records = records[-limit:] if limit else records
    names, rows = _listing(records, wanted, metric, now, everything=machine)
    if not rows and not machine:
        place = f"table {chosen.table}" if chosen.table else str(database.data_root)
        say("no runs match" if filtered or chosen.since else f"no runs yet in {place}")
        return
    print_rows(names, rows, as_json=as_json, as_csv=as_csv)
    if len(records) < every:
        newest, more = f"the {len(records)} newest of {every}", f"{every - len(records)} more"
        say_aside(f"{newest if sort == 'time' else more}; all: rla ls --limit 0")
    if not machine:
        _say_trouble(records)


def _say_trouble(records: list[Record]) -> None:
    if unserved := sum(record.state in WAITING for record in records):
        say_aside(f"({unserved} run(s) wait for an agent; rla-agent start --detach)")
    if broken := sum(bool(record.problems) for record in records):
        say_aside(f"({broken} run(s) with unreadable files; `rla fsck` or `rla show RUN` says which)")


def _one_table(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None and argument != option:
        raise ArgumentError(f"one table at a time, not {argument!r} and --table {option!r}")
    return argument if argument is not None else option


def _full_columns(
    records: list[Record], columns: list[str] | None, sort: str
) -> tuple[list[str] | None, str]:
    """Full names of `columns` and `sort`; raises UnknownNameError for names that no run has."""
    from rla_client.database.filter.name_completion import full_names

    full = full_names({*(columns or ()), sort.removeprefix("-")}, records)
    signed = "-" * sort.startswith("-") + full[sort.removeprefix("-")]
    return None if columns is None else [full[name] for name in columns], signed


def _split(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _sorted(records: list[Record], sort: str, now: float) -> list[Record]:
    if sort == "time":
        return records
    name = sort.removeprefix("-")

    def key(record: Record) -> tuple[int, float, str]:
        value = RowView(record, now).get(name)
        if isinstance(value, int | float):
            return (0, 1.0, "") if math.isnan(value) else (1, float(value), "")
        return (0, 0.0, "") if value is None else (2, 0.0, str(value))

    return sorted(records, key=key, reverse=sort.startswith("-"))


def _listing(
    records: list[Record], asked: list[str] | None, metrics: list[str], now: float, *, everything: bool
) -> tuple[list[str], list[list[object]]]:
    """Column names and rows of `ls`."""
    if asked is not None:
        asked += metrics
        views = [RowView(record, now) for record in records]
        if everything:
            return asked, [[view.get(name) for name in asked] for view in views]
        return asked, [[_shown(view.get(name), view.field(name)) for name in asked] for view in views]
    texts = [record.tracked for record in records]
    keys = list(dict.fromkeys(key for text in texts for key in text))
    several = everything or len({record.table for record in records}) > 1
    heads, values_of = _metric_columns(records, metrics, everything=everything)
    names = ["run", *(["table"] if several else []), "state", "step", "took", *heads, *keys]
    rows = []
    for record, text in zip(records, texts, strict=True):
        took: object = record.duration_s if everything else duration_text(record.duration_s)
        head = [record.index if everything else record.date, *([record.table] if several else [])]
        known = RowView(record, now) if everything else text
        values = [known.get(key) for key in keys]
        rows.append(
            [*head, record.shown_state(now), plain(record.time_step), took, *values_of(record), *values]
        )
    if everything or any(record.display_name for record in records):
        place = len(names) if everything else 1
        names.insert(place, "display_name" if everything else "name")
        for row, record in zip(rows, records, strict=True):
            row.insert(place, record.display_name or None)
    for name, values in _seldom(records, now, everything=everything).items():
        names.append(name)
        for row, value in zip(rows, values, strict=True):
            row.append(value)
    return names, rows


def _seldom(records: list[Record], now: float, *, everything: bool) -> dict[str, list[str | None]]:
    """Further columns at the end, without empty ones; but always tags with `everything`."""
    found = {
        "reason": [None if everything else _why_ended(record) for record in records],
        "parts": ["; ".join(parts_of(record, now)) or None for record in records],
        "tags": [tags_text(record.tags) or None for record in records],
    }
    return {name: values for name, values in found.items() if any(values) or (everything and name == "tags")}


def _why_ended(record: Record) -> str | None:
    """Reason why a run ended without finishing; None if unknown."""
    return record.told.get("reason") if record.state in BROKEN_OFF else None


def _metric_columns(
    records: list[Record], metrics: list[str], *, everything: bool
) -> tuple[list[str], Callable[[Record], list[object]]]:
    """Names of the metrics' columns, and a function for a run's cells; by default the likely metric."""
    if metrics:
        return metrics, lambda record: [record.metrics.get(name) for name in metrics]
    if everything:
        return ["metric", "value"], lambda record: [record.likely or None, record.likely_value]
    likely = sorted({record.likely for record in records} - {""})
    if len(likely) > 1:  # a single name becomes the column's name
        return ["metric"], lambda record: [
            f"{record.likely}={clean(record.likely_value)}" if record.likely else None
        ]
    if not likely:
        return [], lambda _: []
    return likely, lambda record: [float(record.likely_text)] if record.likely_text else [None]


def _shown(value: Any, field: str | None) -> object:  # noqa: ANN401
    """A value for people: dates, durations, lists of names (tags, kinds), whole numbers as ints."""
    if field == "duration":
        return duration_text(value)
    if field in MOMENTS and value is not None:
        return time.strftime(MOMENT, time.localtime(value))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value) or None
    return plain(value)
