"""`rla plot`: metrics, averaged over the runs of each group, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.completion import complete_metric, complete_parameters
from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, DataRoot
from rla_client.cli.output import print_done, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import ArgumentError, DatabaseError, extra
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.database.curves.band_kinds import BAND_NAMES, Band
from rla_client.database.records.likely_metric import likely_of

if TYPE_CHECKING:
    from rla_client.database.records.record import Record


PLOT_ENDINGS = (".png", ".pdf", ".svg")
MAX_INCHES = 40.0  # of a plot; 300 dots an inch make it the 100 million pixels that are drawn at most
PLOT_NAME = "plot.png"  # where nobody names a file
PLOT_MARK = {"Software": "rla plot"}  # text in a PNG file
MARK_WITHIN = 1024  # bytes of its beginning


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla plot return --group lr", "rla plot loss -r lr=0.1 --smooth 5 -o loss.pdf")
    add_command(app, plot, LOOK, *lines)


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
    band: Annotated[
        Band, typer.Option(metavar="KIND", help="ci, iqm, stderr, std, range, median or none.")
    ] = "ci",
    smooth: Annotated[float, typer.Option(min=0.0, help="Moving average over this many points.")] = 0.0,
    x: Annotated[
        str, typer.Option(help="Column of the x axis.", autocompletion=complete_metric)
    ] = "time-step",
    bound: Annotated[float | None, typer.Option(help="Largest x.")] = None,
    width: Annotated[
        float, typer.Option(min=1.0, max=MAX_INCHES, help="Width in inches; 3.3 is one column of a paper.")
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

    from rla_client.plot.frames import draw, gather, notes
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
    from rla_client.code.written_files import note_written

    note_written(database.data_root, out)
    drawn = sum(map(len, found.groups.values()))
    lacking = [f"{len(records) - drawn} without the metric left out"] if drawn < len(records) else []
    told = [*([BAND_NAMES[band]] if band in BAND_NAMES else []), *lacking, *notes(found)]
    curves = f" in {len(found.groups)} curve(s)" if found.by else ""
    facts = {"file": str(out), "metrics": metrics, "runs": drawn, "curves": len(found.groups), "notes": told}
    print_done(facts, "; ".join([f"{out}: {drawn} run(s){curves}", *told]), as_json=as_json)


def _default_file() -> Path:
    """Where a plot goes that nobody named a file for; never over a file that `rla plot` did not write."""
    out = Path(PLOT_NAME)
    if out.exists():
        with open_plain(out, links=True) as file:
            if PLOT_MARK["Software"].encode() not in file.read(MARK_WITHIN):
                raise ArgumentError(
                    f"{out} is there and is not from rla plot; name a file (-o {out} replaces this one)"
                )
    return out


def _likely(records: list[Record]) -> list[str]:
    """The metric to plot where none was named, and a line that says so; DatabaseError: the runs have none."""
    found = likely_of(records)
    if found is None:
        raise DatabaseError("none of these runs has a metric with numbers yet")
    say_aside(f"{found}: chosen by its name; to choose another: rla plot METRIC (rla metrics lists them)")
    return [found]
