"""`rla diff`: differences between two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsCsv, AsJson, DataRoot, OtherRun, RunArgument, TableOption
from rla_client.cli.output import say
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.layout import CODE
from rla_client.database.text.machine_text import csv_text, json_text
from rla_client.database.text.safe_text import lines_text
from rla_client.database.text.text_tables import table_text

if TYPE_CHECKING:
    from rla_client.database.run import Run


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, diff, LOOK, "rla diff @last 'lr=0.1&seed=3'", "rla diff 09-30-01 09-30-02")


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
    from rla_client.database.compare.code_diff import code_differences
    from rla_client.database.compare.run_differences import run_differences

    database = open_database(data_root)
    first, second = database.find(a, table), database.find(b, table)
    runs = (first, second)
    sections = run_differences(*((database.data_root, run.record) for run in runs))
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


def _print_code(lines: str, lacking: list[Run]) -> None:
    from rla_client.database.compare.code_diff import has_archive

    if not lacking:
        say(f"code\n{lines_text(lines)}" if lines else "code: equal")
        return
    dates = [run.record.date for run in lacking]
    say(f"code: not stored for {' and '.join(dates)}")
    for run in lacking:
        if has_archive(run.folder(CODE)):
            say(f"  {run.record.date} has a launcher's archive, which `rla restore-code` unpacks")
