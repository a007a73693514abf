"""`rla diff`, `compare`: how runs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.cli.options import (
    LOOK,
    AsCsv,
    AsJson,
    DataRoot,
    Metrics,
    OtherRun,
    RunArgument,
    Selection,
    TableOption,
    open_database,
    print_rows,
    say,
    say_aside,
    takes_runs,
)
from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import CODE
from rla_client.contract.user_messages import examples

if TYPE_CHECKING:
    from rla_client.database.runs import Run


MAX_COMPARED = 100  # runs that references fit; --where may leave more


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=LOOK, epilog=examples("rla diff @last 'lr=0.1&seed=3'", "rla diff 09-30-01 09-30-02")
    )(diff)
    app.command(
        rich_help_panel=LOOK,
        epilog=examples("rla compare --where 'seed == 1'", "rla compare -r lr=0.1 -m return"),
    )(compare)


def diff(
    a: RunArgument,
    b: OtherRun,
    code: Annotated[bool, typer.Option(help="Compare the code snapshots too.")] = True,
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show how two runs differ: hyper-parameters, environment, lines of code."""
    from rla_client.database.compare import code_differences, run_differences
    from rla_client.database.text import csv_text, json_text, table_text

    database = open_database(data_root)
    first, second = database.find(a, table), database.find(b, table)
    runs = (first, second)
    sections = run_differences(first.record, second.record, *map(_about, runs))
    if as_csv:
        cells = [[name, key, *values] for name, rows in sections.items() for key, values in rows.items()]
        say(csv_text(["section", "name", first.index, second.index], cells))
        return
    lines, without = code_differences(first.folder(CODE), second.folder(CODE)) if code else ("", [])
    lacking = [run for run in runs if run.folder(CODE) in without]
    if as_json:
        content = {**{name: dict(rows) for name, rows in sections.items()}, "code": lines}
        say(json_text({**content, "code_not_stored": [run.record.date for run in lacking]}))
        return
    for name, rows in sections.items():
        if rows:
            listing = [[key, *values] for key, values in rows.items()]
            say(f"{name}\n{table_text(['', first.record.date, second.record.date], listing)}")
        else:
            say(f"{name}: equal")
    if code:
        _print_code(lines, lacking)


def _about(run: Run) -> dict[str, Any]:
    from rla_client.contract.opening import run_file

    return run_file(run.database.data_root, run.table, run.index)


def _print_code(lines: str, lacking: list[Run]) -> None:
    from rla_client.database.compare import has_archive
    from rla_client.database.text import lines_text

    if not lacking:
        say(f"code\n{lines_text(lines)}" if lines else "code: equal")
        return
    dates = [run.record.date for run in lacking]
    say(f"code: not stored for {' and '.join(dates)}")
    for run in lacking:
        if has_archive(run.folder(CODE)):
            say(f"  {run.record.date} has a launcher's archive, which `rla restore-code` unpacks")


@takes_runs()
def compare(
    *,
    chosen: Selection,
    metric: Metrics = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Tabulate the hyper-parameters in which runs differ, with the last values of --metric."""
    from rla_client.database.choosing import full_metrics
    from rla_client.database.compare import differing_keys

    database = open_database(data_root)
    records = chosen.records(database)
    if (chosen.named or chosen.fitting) and len(records) > MAX_COMPARED:
        message = f"{len(records)} runs match, the limit is {MAX_COMPARED}\nhint: --where, --tag, --since"
        raise ArgumentError(message)
    metric = full_metrics(metric or [], records)
    keys, flats = differing_keys(records)
    names = ["run", *keys, *metric]
    rows = [
        [record.date, *(flat.get(key) for key in keys), *(record.metrics.get(name) for name in metric)]
        for record, flat in zip(records, flats, strict=True)
    ]
    print_rows(names, rows, as_json=as_json, as_csv=as_csv)
    if not keys and not as_json and not as_csv:
        say_aside(f"({len(records)} run(s) with the same hyper-parameters)")
