"""`rla table`: final values over seeds for a paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rla_client.cli.completion import complete_parameters
from rla_client.cli.group_table import say_unequal, value_rows
from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, DataRoot, Metrics
from rla_client.cli.output import print_rows, say, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.database.clock import clock

if TYPE_CHECKING:
    from rla_client.database.compare.group_table import GroupTable
    from rla_client.database.compare.groups import Group
    from rla_client.database.text.paper_table import Cell

TableForm: TypeAlias = Literal["plain", "latex", "markdown", "typst", "csv"]
CAPTION = "mean of the last values over runs, with the 95 % interval of the mean (Student's t)"


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla table cartpole -m return", "rla table --group lr -m return -m loss --format latex")
    add_command(app, table, LOOK, *lines)


@takes_runs()
def table(
    *,
    chosen: Selection,
    metric: Metrics = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="One row per value of these; default: the hyper-parameters that differ, but for the seed.",
            autocompletion=complete_parameters,
        ),
    ] = None,
    form: Annotated[
        TableForm,
        typer.Option("--format", "-f", metavar="FORM", help="plain, latex, markdown, typst or csv."),
    ] = "plain",
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Tabulate final values with intervals over seeds, a row per setting, for a paper."""
    from rla_client.database.compare.group_table import settings, tabulate_groups

    records = chosen.some(open_database(data_root))
    by = settings(records) if group is None else [name.strip() for name in group.split(",") if name.strip()]
    found = tabulate_groups(records, by, metric or [], clock())
    if as_json or form == "csv":
        print_rows(*value_rows(found), as_json=as_json, as_csv=not as_json)
    else:
        _print_table(found, form)
    say_unequal(found)
    if group is None and len(records) > 1 and all(same[0].states.total() == 1 for same in found.rows):
        say_aside("each run has a setting of its own; --group NAMES says which parameters make a row")


def _print_table(found: GroupTable, form: Literal["plain", "latex", "markdown", "typst"]) -> None:
    from rla_client.database.text.paper_table import Estimate, estimate_text, paper_table

    names = [*found.by, "runs", *found.metrics]
    rows: list[list[Cell]] = [
        [*same[0].texts, same[0].states.total(), *map(_estimate, same if found.metrics else ())]
        for same in found.rows
    ]
    if form != "plain":
        say(paper_table(form, names, rows, CAPTION))
        return
    texts = [[estimate_text(cell) if isinstance(cell, Estimate) else cell for cell in row] for row in rows]
    print_rows(names, texts, as_json=False, as_csv=False)
    say_aside(f"({CAPTION})")


def _estimate(group: Group) -> Cell:
    from rla_client.database.compare.groups import mean_and_interval
    from rla_client.database.text.paper_table import Estimate

    some = group.states.total() > len(group.numbers)
    return Estimate(*mean_and_interval(group.numbers), len(group.numbers) if some else None)
