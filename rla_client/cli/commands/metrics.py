"""`rla metrics`: the metrics of runs."""

from __future__ import annotations

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsCsv, AsJson, AskedRanks, DataRoot
from rla_client.cli.output import print_rows, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.database.curves.rank_tables import parse_ranks, rank_notes
from rla_client.database.tree.run_names import shown_name


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, metrics, LOOK, "rla metrics", "rla metrics --table cartpole")


@takes_runs()
def metrics(
    *,
    chosen: Selection,
    ranks: AskedRanks = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the metrics of runs (default: the newest): number of values, last value, range."""
    from rla_client.database.compare.metric_summary import summaries

    database = open_database(data_root)
    records = chosen.some(database) if chosen.given else [database.find("@last").record]
    which = parse_ranks(ranks)
    found = summaries(database, records, which)
    machine = as_json or as_csv
    who = shown_name(records[0].table, records[0].index) if len(records) == 1 else f"{len(records)} runs"
    if not machine:
        say_aside(f"{who}:" if found else f"{who}: no metric yet")
    shares = {name: one.share for name, one in found.items() if one.share is not None}
    for line in rank_notes(which, shares):
        say_aside(line)
    several = machine or len(records) > 1
    names = ["metric", *(["runs"] if several else []), "rows", "last", "min", "max"]
    rows = [
        [name, *([one.runs] if several else []), one.rows, one.last, one.low, one.high]
        for name, one in found.items()
    ]
    if rows or machine:
        print_rows(names, rows, as_json=as_json, as_csv=as_csv)
