"""`rla plot`, `export`, `tb`, `import`: taking runs out, and foreign ones in."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.options import (
    LOOK,
    TAKE,
    AsJson,
    DataRoot,
    Metrics,
    Selection,
    add_command,
    complete_metric,
    complete_parameters,
    held,
    open_database,
    print_done,
    say_aside,
    takes_runs,
)
from rla_client.contract.errors import ArgumentError, DatabaseError, extra
from rla_client.contract.files import open_plain
from rla_client.database.records import clock, likely_of

if TYPE_CHECKING:
    from rla_client.database.records import Record

PLOT_ENDINGS = (".png", ".pdf", ".svg")
PLOT_NAME = "plot.png"  # where nobody names a file
PLOT_MARK = {"Software": "rla plot"}  # text in a PNG file
MARK_WITHIN = 1024  # bytes of its beginning


def register(app: typer.Typer) -> None:
    """Add the commands."""
    lines = ("rla plot return --group lr", "rla plot loss -r lr=0.1 --smooth 5 -o loss.pdf")
    add_command(app, plot, LOOK, *lines)
    lines = ("rla export runs.csv", "rla export curves.parquet --metric return --table cartpole")
    add_command(app, export, TAKE, *lines)
    add_command(app, tb, LOOK, "rla tb", "rla tb --where 'lr == 0.1' --port 0")
    lines = ("rla import tensorboard runs/ --table cleanrl", "rla import csv results/progress.csv")
    add_command(app, import_, TAKE, *lines, name="import")


@takes_runs(argument=False)
def plot(
    metrics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METRIC",
            help="Columns of progress.csv (see rla metrics); default: the return, reward, score, …",
            autocompletion=complete_metric,
        ),
    ] = None,
    *,
    chosen: Selection,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help=f"PNG, PDF or SVG file; default: {PLOT_NAME}.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="One curve per value of these hyper-parameters, separated by commas.",
            autocompletion=complete_parameters,
        ),
    ] = None,
    band: Annotated[str, typer.Option(help="ci, iqm, stderr, std, range, median or none.")] = "ci",
    smooth: Annotated[float, typer.Option(min=0.0, help="Moving average over this many points.")] = 0.0,
    x: Annotated[
        str, typer.Option(help="Column of the x axis.", autocompletion=complete_metric)
    ] = "time-step",
    bound: Annotated[float | None, typer.Option(help="Largest x.")] = None,
    width: Annotated[
        float, typer.Option(min=1.0, help="Width in inches; 3.3 is one column of a paper.")
    ] = 3.3,
    ylabel: Annotated[
        str | None, typer.Option(help="Label of the y axis; default: the metric's name.")
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Plot metrics, averaged over the runs of each group."""
    out = _default_file() if out is None else out
    if out.suffix.lower() not in PLOT_ENDINGS:
        raise ArgumentError(f"--out ends in {', '.join(PLOT_ENDINGS)}, not {out.name!r}")
    database = open_database(data_root)
    with extra("plot", "rla plot"):
        import matplotlib as mpl  # noqa: F401 - here, as what follows imports it late
        import pandas as pd  # noqa: F401

    from rla_client.plot.frames import BAND_NAMES, draw, gather, notes
    from rla_client.plot.style import paper_style

    records = chosen.some(database, light=group is None)
    metrics = metrics or _likely(records)
    frame = database.frame(records, whole=group is not None)
    groups = [name.strip() for name in group.split(",")] if group else None
    found = gather(frame, metrics, database=database, group=groups, x=x, bound=bound)
    figure = draw(found, band=band, smooth=smooth, width=width, ylabel=ylabel)
    out.parent.mkdir(parents=True, exist_ok=True)
    with paper_style():  # fonts as text in PDF and SVG
        figure.savefig(out, metadata=PLOT_MARK if out.suffix.lower() == ".png" else None)
    from rla_client.code.select import note_written

    note_written(database.data_root, out)
    drawn = sum(map(len, found.groups.values()))
    lacking = [f"{len(records) - drawn} without the metric left out"] if drawn < len(records) else []
    told = [*([BAND_NAMES[band]] if band in BAND_NAMES else []), *lacking, *notes(found)]
    curves = f" in {len(found.groups)} curve(s)" if found.by else ""
    facts = {"file": str(out), "metrics": metrics, "runs": drawn, "curves": len(found.groups), "notes": told}
    print_done(facts, "; ".join([f"{out}: {drawn} run(s){curves}", *told]), as_json=as_json)


def _default_file() -> Path:
    """Where a plot goes that nobody named a file for.

    Raises:
        ArgumentError: a file is there that `rla plot` did not write.
    """
    out = Path(PLOT_NAME)
    if out.exists():
        with open_plain(out, links=True) as file:
            if PLOT_MARK["Software"].encode() not in file.read(MARK_WITHIN):
                raise ArgumentError(
                    f"{out} is there and is not from rla plot; name a file (-o {out} replaces this one)"
                )
    return out


def _likely(records: list[Record]) -> list[str]:
    """The metric to plot where none was named, and a line that says so.

    Raises:
        DatabaseError: the runs have none.
    """
    found = likely_of(records)
    if found is None:
        raise DatabaseError("none of these runs has a metric with numbers yet")
    say_aside(f"{found}: chosen by its name; to choose another: rla plot METRIC (rla metrics lists them)")
    return [found]


@takes_runs()
def export(
    out: Annotated[
        Path, typer.Argument(help="FILE.csv, FILE.jsonl, FILE.parquet, or a folder for --tensorboard.")
    ],
    *,
    chosen: Selection,
    metric: Metrics = None,
    form: Annotated[
        str | None, typer.Option("--format", help="csv, jsonl or parquet; default: by the file's suffix.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Copy the TensorBoard event files into a folder.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Write runs (one row each), or with --metric their curves, to a file."""
    from rla_client.database.query import make_logdir, tensorboard_folders
    from rla_client.database.text import write_table

    database = open_database(data_root)
    records = chosen.records(database)
    if tensorboard:
        folders = tensorboard_folders(database.data_root, records)
        make_logdir(folders, out, copy=True)
        facts: dict[str, object] = {"file": str(out), "runs": len(folders)}
        print_done(facts, f"{out}: event files of {len(folders)} run(s)", as_json=as_json)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    frame = database.curves(records, metric) if metric else database.frame(records).dropna(axis=1, how="all")
    written = write_table(frame, out, form)
    from rla_client.code.select import note_written

    note_written(database.data_root, out)
    facts = {"file": str(out), "rows": len(frame), "runs": len(records)}
    print_done(facts, f"{out}: {len(frame)} rows of {len(records)} run(s), {written}", as_json=as_json)


@takes_runs()
def tb(
    *,
    chosen: Selection,
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.")] = 6006,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    print_only: Annotated[
        bool, typer.Option("--print", help="Only make the log folder and print its path.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Start TensorBoard on a selection of runs; --json only with --print."""
    import subprocess
    from importlib.util import find_spec

    from rla_client.database.query import fresh_logdir, make_logdir, tensorboard_folders

    database = open_database(data_root)
    records = chosen.records(database)
    folders = tensorboard_folders(database.data_root, records)
    if not folders:
        raise DatabaseError("none of the chosen runs has TensorBoard events")
    if print_only:
        folder = fresh_logdir(clock())
        make_logdir(folders, folder, copy=False)
        print_done({"file": str(folder), "runs": len(folders)}, str(folder), as_json=as_json)
        return
    if find_spec("tensorboard") is None:
        raise DatabaseError("rla tb needs tensorboard: pip install 'rla-agent[plot]'")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the folder goes, TensorBoard ends
    with tempfile.TemporaryDirectory(prefix="rla-tb-") as made:
        make_logdir(folders, Path(made) / "runs", copy=False)
        say_aside(f"{len(folders)} run(s); Ctrl-C ends it")
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", f"{made}/runs", "--port", str(port)]
        raise typer.Exit(subprocess.run([*command, "--host", host], check=False).returncode)


def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="wandb, mlflow, trackio, neptune, aim, sacred, tensorboard, garage or csv."
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="PATH", help="Folder (or file) of that tool.", exists=True)
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
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Import runs of other tools; those that were imported before are left as they are.

    Ended half-way, the same command continues where it stopped.
    """
    from rla_client.database.imports import import_logs

    root = open_database(data_root, new=True).data_root
    with held(root):
        made, there, problems = import_logs(root, kind, folder, table, clock(), reruns=reruns, media=media)
    for problem in problems:
        say_aside(f"left out: {problem}")
    counts = Counter(run.rsplit("/", 4)[0] for run in made)
    where = ", ".join(f"{name} ({count})" if len(counts) > 1 else name for name, count in counts.items())
    told = f"imported {len(made)} run(s)" + (f" into table {where}" if made else "")
    told += f"; {len(there)} were there already" if there else ""
    facts = {"tables": dict(counts), "runs": len(made), "already_there": len(there), "left_out": [*problems]}
    print_done(facts, told, as_json=as_json)
    if problems and not made and not there:
        raise typer.Exit(1)
