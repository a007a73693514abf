"""`rla import`: runs of other tools."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.completion import complete_run
from rla_client.cli.open_database import held, open_database
from rla_client.cli.options import AsJson, DataRoot
from rla_client.cli.output import print_done, say_aside
from rla_client.cli.registration import TAKE, add_command
from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import SAMPLES
from rla_client.database.clock import clock as now


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla import tensorboard runs/ --table cleanrl", "rla import csv results/progress.csv")
    add_command(app, import_, TAKE, *lines, name="import")


def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="wandb, mlflow, trackio, neptune, aim, sacred, tensorboard, garage, csv; samples (--run).",
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="What that tool wrote: a folder, or one file (not of garage, aim, sacred).",
            exists=True,
        ),
    ],
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            "-t",
            help="Task table to import into; default: the project of each run, else `imported`.",
        ),
    ] = None,
    media: Annotated[
        bool, typer.Option("--media/--no-media", help="Also copy images, videos and other files of the runs.")
    ] = True,
    reruns: Annotated[
        bool, typer.Option("--reruns", help="Also import the runs that `rla rerun` made.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            "-r",
            metavar="RUN",
            help="Of `samples`: the run that they are of.",
            autocompletion=complete_run,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Of `samples`: their name; default: `eval` where file, folder or row says so, else `train`.",
        ),
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Import runs of other tools; those that were imported before are left as they are.

    Ended half-way, the same command continues where it stopped.
    """
    if (kind == SAMPLES) is not (run is not None):
        raise ArgumentError("samples are imported into a run: rla import samples PATH --run RUN")
    if name is not None and run is None:
        raise ArgumentError("--name is of samples: rla import samples PATH --run RUN --name NAME")
    if run is not None:
        _import_samples(run, folder, table, data_root, name, as_json=as_json)
        return
    from rla_client.database.imports.import_logs import import_logs

    root = open_database(data_root, new=True).data_root
    with held(root):
        done = import_logs(root, kind, folder, table, now(), reruns=reruns, media=media)
    made, there, problems = done.made, done.there, done.problems
    for problem in problems:
        say_aside(f"left out: {problem}")
    for remark, count in done.remarks.items():
        say_aside(f"{count} run(s): {remark}")
    counts = Counter(run.rsplit("/", 4)[0] for run in made)
    where = ", ".join(f"{name} ({count})" if len(counts) > 1 else name for name, count in counts.items())
    text = f"imported {len(made)} run(s)" + (f" into table {where}" if made else "")
    text += f"; {len(there)} were there already" if there else ""
    facts = {
        "tables": dict(counts),
        "runs": len(made),
        "already_there": len(there),
        "left_out": [*problems],
        "remarks": dict(done.remarks),
    }
    print_done(facts, text, as_json=as_json)
    if problems and not made and not there:
        raise typer.Exit(1)


def _import_samples(
    reference: str, path: Path, table: str | None, data_root: Path | None, name: str | None, *, as_json: bool
) -> None:
    from rla_client.database.imports.samples import import_samples

    database = open_database(data_root)
    run = database.find(reference, table)
    done = import_samples(database.data_root, run.table, run.index, path, now(), run.hyper_param, name=name)
    facts = {
        "run": f"{run.table}/{run.index}",
        "file": None if done.file is None else str(done.file),
        "rows": done.rows,
        "already_there": done.there,
        "left_out": [*done.withheld],
        "skipped_files": [*map(str, done.skipped)],
    }
    if done.skipped:
        one = done.skipped[0]
        say_aside(
            f"skipped {len(done.skipped)} file(s) with neither a prompt nor a completion, such as {one}"
        )
    for column in done.withheld:
        say_aside(f"left out: column {column!r}, taken for token ids, masks or log-probabilities")
    text = f"{done.rows} samples: {done.file}" if done.file else f"no new samples in {path}"
    text += f"; {done.there} were there already" if done.there else ""
    print_done(facts, text, as_json=as_json)
