"""`rla export`: runs or curves as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, AskedRanks, DataRoot, Metrics
from rla_client.cli.output import print_done
from rla_client.cli.registration import TAKE, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import ArgumentError
from rla_client.database.curves.rank_tables import parse_ranks, rank_notes
from rla_client.database.text.table_files import TableFormat, writable_format, write_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla export runs.csv", "rla export curves.parquet --metric return --table cartpole")
    add_command(app, export, TAKE, *lines)


@takes_runs()
def export(
    out: Annotated[
        Path, typer.Argument(help="FILE.csv, FILE.jsonl, FILE.parquet, or a folder for --tensorboard.")
    ],
    *,
    chosen: Selection,
    metric: Metrics = None,
    ranks: AskedRanks = None,
    form: Annotated[
        TableFormat | None, typer.Option("--format", help="Default: by the file's suffix.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Copy the TensorBoard event files into a folder.")
    ] = False,
    samples: Annotated[
        bool, typer.Option("--samples", help="The samples of the runs (log_samples), one row each.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Write runs (one row each), or with --metric their curves, with --samples their samples, to a file."""
    from rla_client.database.samples.samples_of_run import samples_frame
    from rla_client.database.tensorboard_folders import make_logdir, tensorboard_folders

    if ranks is not None and not metric:
        raise ArgumentError("--ranks is about curves: give the --metric, too")
    database = open_database(data_root)
    records = chosen.records(database)
    rank_texts: list[str] = []
    if tensorboard:
        folders = tensorboard_folders(database.data_root, records)
        make_logdir(folders, out, copy=True)
        facts: dict[str, object] = {"file": str(out), "runs": len(folders)}
        print_done(facts, f"{out}: event files of {len(folders)} run(s)", as_json=as_json)
        return
    written = writable_format(out, form)
    out.parent.mkdir(parents=True, exist_ok=True)
    if samples:
        frame = samples_frame(database.data_root, records)
    elif metric:
        frame = database.curves(records, metric, ranks=ranks)
        from rla_client.database.curves.curve_frame import frame_shares

        rank_texts = rank_notes(parse_ranks(ranks), frame_shares(frame))
    else:
        frame = database.frame(records).dropna(axis=1, how="all")
    write_table(frame, out, written)
    from rla_client.code.written_files import note_written

    note_written(database.data_root, out)
    facts = {"file": str(out), "rows": len(frame), "runs": len(records)}
    if rank_texts:
        facts["notes"] = rank_texts
    text = f"{out}: {len(frame)} rows of {len(records)} run(s), {written}"
    print_done(facts, "; ".join([text, *rank_texts]), as_json=as_json)
