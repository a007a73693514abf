"""`rla compare`: differing hyper-parameters of runs."""

from __future__ import annotations

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsCsv, AsJson, DataRoot, Metrics
from rla_client.cli.output import print_rows, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import ArgumentError

MAX_COMPARED = 100  # runs that references match; --where may give more


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, compare, LOOK, "rla compare --where 'seed == 1'", "rla compare -r lr=0.1 -m return")


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
    from rla_client.database.compare.run_differences import differing_keys
    from rla_client.database.filter.name_completion import full_metrics

    database = open_database(data_root)
    records = chosen.records(database)
    if (chosen.named or chosen.fitting) and len(records) > MAX_COMPARED:
        raise ArgumentError(
            f"{len(records)} runs match, the limit is {MAX_COMPARED}\nhint: --where, --tag, --since, -n"
        )
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
