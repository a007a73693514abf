"""`rla report`: the page of runs as one file."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.data_roots import DataRoots, existing_roots
from rla_client.cli.options import MOST_SHOWN, AsJson, Where
from rla_client.cli.output import print_done
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.errors import extra


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla report report.html", 'rla report report.html --where "lr == 0.01" --follow')
    add_command(app, report, LOOK, *lines)


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The file to write.")],
    data_root: DataRoots = None,
    view: Annotated[str | None, typer.Option(help="A view that was stored in `rla web` (Views…).")] = None,
    where: Where = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="One curve with a band for each value of these.")
    ] = None,
    smooth: Annotated[float | None, typer.Option(min=0, help="Smooth over so many points.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_SHOWN, help="How many runs, the newest ones.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write it again whenever something is new, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two looks of --follow.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Write the page of runs as one file that a browser opens without a server, 2 MB at most."""
    roots = existing_roots(data_root)
    with extra("web", "rla report"):
        from rla_client.web.report import view_of, write_report
        from rla_client.web.run_registry import Site
    own = {"where": where, "group": group, "smooth": None if smooth is None else f"{smooth:g}"}
    site = Site(roots)
    shown = view_of(site, view, {name: [value] for name, value in own.items() if value})

    def written(size: int, left_out: int) -> None:
        done = {"file": str(out), "bytes": size, "left_out": left_out}
        without = f", without the {left_out} oldest runs, which do not fit" if left_out else ""
        print_done(done, f"{out}: {size / 1e6:.2f} MB{without}", as_json=as_json)
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        write_report(out, site, shown, limit=limit, follow_s=every if follow else None, written=written)
