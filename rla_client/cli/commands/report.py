"""`rla report`: page of runs as one file."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.data_roots import DataRoots, existing_roots
from rla_client.cli.options import MOST_SHOWN, AsJson, Metrics, Since, Where
from rla_client.cli.output import print_done
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection
from rla_client.contract.errors import ArgumentError, extra
from rla_client.database.clock import clock
from rla_client.database.filter.since import parse_since

if TYPE_CHECKING:
    from rla_client.web.report import Made


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = (
        "rla report report.pdf --group lr -m return",
        'rla report report.html --where "lr == 0.01" --follow',
    )
    add_command(app, report, LOOK, *lines)


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .html, or .pdf to print.")],
    data_root: DataRoots = None,
    view: Annotated[str | None, typer.Option(help="A view that was stored in `rla web` (Views…).")] = None,
    where: Where = None,
    since: Since = None,
    metric: Metrics = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="One curve with a band for each value of these.")
    ] = None,
    smooth: Annotated[float | None, typer.Option(min=0, help="Smooth over so many points.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_SHOWN, help="How many runs, the newest ones.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write it again whenever something is new, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two looks of --follow.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Write runs as one file: the page, which a browser opens without a server (2 MB at most), or a PDF."""
    roots = existing_roots(data_root)
    if out.suffix.lower() == ".pdf":
        if len(roots) > 1 or view is not None or follow:
            raise ArgumentError("a PDF is of one database, without --view and --follow")
        names = [name.strip() for name in group.split(",") if name.strip()] if group else None
        _write_pdf(
            out,
            roots[0],
            Selection(where=where, since=since, limit=limit),
            names,
            metric or [],
            smooth or 0.0,
            as_json,
        )
        return
    with extra("web", "rla report"):
        from rla_client.web.report import view_of, write_report
        from rla_client.web.run_registry import Site
    if since is not None:
        begun = f"time >= {parse_since(since, clock())!r}"
        where = begun if where is None else f"({where}) and {begun}"
    own = {"where": where, "group": group, "smooth": None if smooth is None else f"{smooth:g}"}
    site = Site(roots)
    shown = view_of(site, view, {name: [value] for name, value in own.items() if value})

    def written(made: Made) -> None:
        size = len(made.page)
        done = {
            "file": str(out),
            "bytes": size,
            "runs": made.runs,
            "left_out": made.left_out,
            "metrics": made.metrics,
            "metrics_left_out": made.metrics_left_out,
            "pictures": made.pictures,
            "cut": made.cut,
        }
        print_done(done, f"{out}: {size / 1e6:.2f} MB, {made.text}", as_json=as_json)
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        write_report(
            out,
            site,
            shown,
            limit=limit,
            metrics=metric,
            follow_s=every if follow else None,
            written=written,
        )


def _write_pdf(
    out: Path,
    root: Path,
    chosen: Selection,
    group: list[str] | None,
    metrics: list[str],
    smooth: float,
    as_json: bool,
) -> None:
    with extra("plot", "rla report FILE.pdf"):
        import matplotlib as mpl  # noqa: F401 - later imports of it must not fail
        import pandas as pd  # noqa: F401

    from rla_client.database.database import Database
    from rla_client.plot.pdf_report import write_pdf

    database = Database(root)
    records = chosen.some(database)
    pages = write_pdf(out, database, records, group=group, metrics=metrics, smooth=smooth)
    facts = {"file": str(out), "pages": pages, "runs": len(records)}
    print_done(facts, f"{out}: {pages} page(s) about {len(records)} run(s)", as_json=as_json)
