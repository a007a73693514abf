"""`rla plot`: learning curves as a picture, averaged over groups of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.completion import complete_metric, complete_parameters
from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, AskedRanks, DataRoot
from rla_client.cli.output import print_done, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import ArgumentError, DatabaseError, extra
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.database.curves.band_kinds import BAND_NAMES, Band
from rla_client.database.records.likely_metric import likely_of
from rla_client.plot.style import COLUMN_INCHES, PAGE_INCHES

if TYPE_CHECKING:
    from rla_client.database.records.record import Record


PLOT_ENDINGS = (".png", ".pdf", ".svg")
MAX_INCHES = 40.0  # at 300 dots per inch more than 100 million pixels, the maximum
PLOT_NAME = "plot.png"  # default file
PDF_NAME = "plot.pdf"
MARK = "rla plot"
PLOT_MARKS = {".png": {"Software": MARK}, ".pdf": {"Creator": MARK}}  # metadata by the ending of the file
MARK_WITHIN = 1 << 16  # bytes at the beginning of a PNG, or the end of a PDF, that hold the mark
SIZES = {"column": COLUMN_INCHES, "page": PAGE_INCHES}


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla plot return --group lr", "rla plot return --group lr --pdf --serif")
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
    pdf: Annotated[
        bool,
        typer.Option(
            "--pdf", help=f"A PDF for a paper ({PDF_NAME} without --out), with TrueType fonts embedded."
        ),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="One curve per value of these hyper-parameters, separated by commas; run: one per run.",
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
    ranks: AskedRanks = None,
    width: Annotated[
        float | None, typer.Option(min=1.0, max=MAX_INCHES, help="Width in inches; default: a column's.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help=f"column ({COLUMN_INCHES} inches wide), page ({PAGE_INCHES}), or WIDTHxHEIGHT in inches.",
        ),
    ] = None,
    serif: Annotated[bool, typer.Option("--serif", help="Letters as in a paper set in Times.")] = False,
    ylabel: Annotated[
        str | None, typer.Option(help="Label of the y axis; default: the metric's name.")
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Plot metrics, averaged over the runs of each group."""
    inches = _inches(size, width)
    out = _default_file(PDF_NAME if pdf else PLOT_NAME) if out is None else out
    if pdf and out.suffix.lower() != ".pdf":
        raise ArgumentError(f"--pdf writes a file that ends in .pdf, not {out.name!r}")
    if out.suffix.lower() not in PLOT_ENDINGS:
        raise ArgumentError(f"--out ends in {', '.join(PLOT_ENDINGS)}, not {out.name!r}")
    for name in metrics or ():
        if Path(name).suffix.lower() in PLOT_ENDINGS:  # a mistake such as `--pdf plot.pdf`
            raise ArgumentError(f"{name!r} is a file, no metric\nhint: -o {name} writes it")
    database = open_database(data_root)
    with extra("plot", "rla plot"):
        import matplotlib as mpl  # noqa: F401 - later imports of it must not fail
        import pandas as pd  # noqa: F401

    from rla_client.plot.frames import draw, gather, notes
    from rla_client.plot.style import paper_style

    records = chosen.some(database, light=group is None)
    metrics = metrics or _likely(records)
    frame = database.frame(records, whole=group is not None)
    groups = [name.strip() for name in group.split(",")] if group else None
    found = gather(frame, metrics, database=database, group=groups, x=x, bound=bound, ranks=ranks)
    figure = draw(
        found, band=band, smooth=smooth, width=inches[0], height=inches[1], ylabel=ylabel, serif=serif
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with paper_style(serif=serif):  # fonts as text in PDF and SVG
        figure.savefig(out, metadata=PLOT_MARKS.get(out.suffix.lower()))
    from rla_client.code.written_files import note_written

    note_written(database.data_root, out)
    drawn = sum(map(len, found.groups.values()))
    lacking = [f"{len(records) - drawn} without the metric left out"] if drawn < len(records) else []
    told = [*([BAND_NAMES[band]] if band in BAND_NAMES else []), *lacking, *notes(found)]
    curves = f" in {len(found.groups)} curve(s)" if found.by else ""
    facts = {"file": str(out), "metrics": metrics, "runs": drawn, "curves": len(found.groups), "notes": told}
    print_done(facts, "; ".join([f"{out}: {drawn} run(s){curves}", *told]), as_json=as_json)


def _inches(size: str | None, width: float | None) -> tuple[float, float | None]:
    """Width and height by --size or --width; None for a height by the number of panels."""
    if size is None:
        return width or COLUMN_INCHES, None
    if width is not None:
        raise ArgumentError("--size and --width both say how wide the plot is\nhint: leave out --width")
    if size in SIZES:
        return SIZES[size], None
    try:
        wide, high = (float(part) for part in size.split("x"))
    except ValueError:
        wide = high = 0.0
    if not (1 <= wide <= MAX_INCHES and 1 <= high <= MAX_INCHES):
        raise ArgumentError(
            f"--size {size!r} is none of {', '.join(SIZES)}, nor WIDTHxHEIGHT in inches"
            f" (1 to {MAX_INCHES:g}), such as 3.3x2.4"
        )
    return wide, high


def _default_file(name: str) -> Path:
    """Default file of a plot; raises ArgumentError if it exists and is not from `rla plot`."""
    out = Path(name)
    if out.exists():
        with open_plain(out, links=True) as file:
            begin = file.read(MARK_WITHIN)
            file.seek(max(0, os.fstat(file.fileno()).st_size - MARK_WITHIN))
            if MARK.encode() not in begin + file.read(MARK_WITHIN):
                raise ArgumentError(
                    f"{out} is there and is not from rla plot; name a file (-o {out} replaces this one)"
                )
    return out


def _likely(records: list[Record]) -> list[str]:
    """The default metric, which is printed; raises DatabaseError if the runs have none."""
    found = likely_of(records)
    if found is None:
        raise DatabaseError("none of these runs has a metric with numbers yet")
    say_aside(f"{found}: chosen by its name; to choose another: rla plot METRIC (rla metrics lists them)")
    return [found]
