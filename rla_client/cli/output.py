"""`rla plot`, `export`, `tb`, `import`: taking runs out, and foreign ones in."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.completion import complete_metric, complete_parameters
from rla_client.cli.options import (
    DataRoot,
    Metrics,
    Selection,
    open_database,
    say,
    say_aside,
    say_waiting,
    takes_runs,
)
from rla_client.code.written_files import note_written
from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.extras import extra

if TYPE_CHECKING:
    from rla_client.database.records import Record

PLOT_ENDINGS = (".png", ".pdf", ".svg")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(plot)
    app.command()(export)
    app.command()(tb)
    app.command("import")(import_)


@takes_runs(argument=False)
def plot(
    metrics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METRIC",
            help="Columns of progress.csv (rla metrics); by default the likely one: return, reward, score, …",
            autocompletion=complete_metric,
        ),
    ] = None,
    *,
    chosen: Selection,
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG, PDF or SVG file.")] = Path("plot.png"),
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Hyper-parameters that make the curves, separated by commas.",
            show_default=False,
            autocompletion=complete_parameters,
        ),
    ] = None,
    band: Annotated[str, typer.Option(help="ci, iqm, stderr, std, range, median or none.")] = "ci",
    smooth: Annotated[float, typer.Option(help="Moving average over so many points.")] = 0.0,
    x: Annotated[
        str, typer.Option(help="Column of the x axis.", autocompletion=complete_metric)
    ] = "time-step",
    bound: Annotated[float | None, typer.Option(help="Largest x.", show_default=False)] = None,
    width: Annotated[float, typer.Option(help="Inches; 3.3 is a column of a paper.")] = 3.3,
    ylabel: Annotated[
        str | None, typer.Option(help="Instead of the metric's name.", show_default=False)
    ] = None,
    data_root: DataRoot = None,
) -> None:
    """Plot metrics, averaged over the runs of each group."""
    if out.suffix.lower() not in PLOT_ENDINGS:
        message = f"--out ends in {', '.join(PLOT_ENDINGS)}, not {out.name!r}"
        raise ArgumentError(message)
    database = open_database(data_root)
    with extra("plot", "rla plot"):
        import matplotlib as mpl  # noqa: F401 - here, as what follows imports it late
        import pandas as pd  # noqa: F401

    from rla_client.plot.frames import BAND_NAMES, draw, gather, notes
    from rla_client.plot.style import paper_style

    records = chosen.records(database, light=group is None)
    if not records:
        message = "no run fits"
        raise ArgumentError(message)
    metrics = metrics or _likely(records)
    frame = database.frame(records, whole=group is not None)
    groups = [name.strip() for name in group.split(",")] if group else None
    found = gather(frame, metrics, database=database, group=groups, x=x, bound=bound)
    figure = draw(found, band=band, smooth=smooth, width=width, ylabel=ylabel)
    out.parent.mkdir(parents=True, exist_ok=True)
    with paper_style():  # fonts as text in PDF and SVG
        figure.savefig(out)
    note_written(database.data_root, out)
    drawn = sum(map(len, found.groups.values()))
    lacking = [f"{len(records) - drawn} without the metric left out"] if drawn < len(records) else []
    told = [*([BAND_NAMES[band]] if band in BAND_NAMES else []), *lacking, *notes(found)]
    say(
        "; ".join(
            [f"{out}: {drawn} run(s)" + (f" in {len(found.groups)} curve(s)" if found.by else ""), *told]
        )
    )


def _likely(records: list[Record]) -> list[str]:
    """The metric to plot where none was named, and a line that says so.

    Raises:
        DatabaseError: the runs have none.
    """
    from rla_client.database.groups import likely_of

    found = likely_of(records)
    if found is None:
        message = "none of these runs has a metric with numbers yet"
        raise DatabaseError(message)
    say_aside(f"{found}: the likely metric; others: rla plot METRIC (rla metrics lists them)")
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
        str | None,
        typer.Option("--format", help="csv, jsonl or parquet; else by the ending.", show_default=False),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Copy event files into a folder.")
    ] = False,
    data_root: DataRoot = None,
) -> None:
    """Write runs (one row each), or with --metric their curves, to a file."""
    from rla_client.database.export import make_logdir, tensorboard_folders, write_table

    database = open_database(data_root)
    records = chosen.records(database)
    if tensorboard:
        folders = tensorboard_folders(database.data_root, records)
        make_logdir(folders, out, copy=True)
        say(f"{out}: event files of {len(folders)} run(s)")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    frame = database.curves(records, metric) if metric else database.frame(records).dropna(axis=1, how="all")
    written = write_table(frame, out, form)
    note_written(database.data_root, out)
    say(f"{out}: {len(frame)} rows of {len(records)} run(s), {written}")


@takes_runs()
def tb(
    *,
    chosen: Selection,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 6006,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    print_only: Annotated[
        bool, typer.Option("--print", help="Make the folder, print it, start nothing.")
    ] = False,
    data_root: DataRoot = None,
) -> None:
    """Start TensorBoard on a selection of runs."""
    import signal
    import subprocess
    import sys
    from importlib.util import find_spec

    from rla_client.database.export import fresh_logdir, make_logdir, tensorboard_folders
    from rla_client.database.records import clock

    database = open_database(data_root)
    records = chosen.records(database)
    folders = tensorboard_folders(database.data_root, records)
    if not folders:
        message = "none of the chosen runs has TensorBoard events"
        raise DatabaseError(message)
    if print_only:
        folder = fresh_logdir(clock())
        make_logdir(folders, folder, copy=False)
        say(str(folder))
        return
    if find_spec("tensorboard") is None:
        message = "rla tb needs tensorboard: pip install 'rla-agent[plot]'"
        raise DatabaseError(message)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the folder goes, TensorBoard ends
    with tempfile.TemporaryDirectory(prefix="rla-tb-") as made:
        make_logdir(folders, Path(made) / "runs", copy=False)
        say_aside(f"{len(folders)} run(s); Ctrl-C ends it")
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", f"{made}/runs", "--port", str(port)]
        raise typer.Exit(subprocess.run([*command, "--host", host], check=False).returncode)


def import_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="tensorboard, csv or garage.")],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder (or CSV file) to import.", exists=True)
    ],
    table: Annotated[str, typer.Option("--table", "-t", help="Task table that gets the runs.")] = "imported",
    reruns: Annotated[bool, typer.Option("--reruns", help="Also what `rla rerun` made of runs.")] = False,
    data_root: DataRoot = None,
) -> None:
    """Make runs out of foreign logs; importing again leaves what is there."""
    from rla_client.database.changes import changing
    from rla_client.database.foreign import import_logs
    from rla_client.database.records import clock

    root = open_database(data_root, new=True).data_root
    with changing(root, clock(), say_waiting):
        made, there, problems = import_logs(root, kind, folder, table, clock(), reruns=reruns)
    for problem in problems:
        say_aside(f"left out: {problem}")
    say(
        f"imported {len(made)} run(s) into table {table}"
        + (f"; {len(there)} were there already" if there else "")
    )
    if problems and not made and not there:
        raise typer.Exit(1)
