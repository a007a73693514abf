"""`rla web`, `report`, `mcp`, `top`: runs on a page, before an assistant, on a terminal's screen.

What shows them is another part of the package, which an extra installs; it is imported when the command runs.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.options import (
    LOOK,
    AsJson,
    DataRoot,
    Selection,
    Where,
    add_command,
    open_database,
    print_done,
    say,
    takes_runs,
)
from rla_client.contract.errors import ArgumentError, extra

if TYPE_CHECKING:
    from rla_client.database.records import Record

DataRoots = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-root",
        "-d",
        envvar="RLA_DATA_ROOT",
        help="A database: the folder that holds log/ (repeatable).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, web, LOOK, "rla web", "rla web --data-root data --port 0")
    lines = ("rla report report.html", 'rla report report.html --where "lr == 0.01" --follow')
    add_command(app, report, LOOK, *lines)
    add_command(app, mcp, LOOK, "rla mcp", "rla mcp --data-root data")
    add_command(app, top, LOOK, "rla top", "rla top --data-root data")


def web(
    data_root: DataRoots = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port; 0 picks a free one; default: the first free one from 8787."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; default: this machine only.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name under which the page may be opened (repeatable)."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser if there is a screen.")
    ] = True,
) -> None:
    """Show runs, curves and files in a browser, live."""
    roots = [open_database(root).data_root for root in (data_root or (None,))]
    with extra("web", "rla web"):
        from rla_client.web.serve import serve
    serve(roots, host=host, port=port, allowed=allow_host or [], browser=browser, say=_say_now)


def _say_now(text: str) -> None:
    """Also into a pipe or a file before the server ends."""
    say(text)
    sys.stdout.flush()


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The file to write.")],
    data_root: DataRoots = None,
    view: Annotated[str | None, typer.Option(help="A view that was stored in `rla web` (Views…).")] = None,
    where: Where = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="One curve with a band for each value of these.")
    ] = None,
    smooth: Annotated[float | None, typer.Option(min=0, help="Smooth over so many points.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many runs, the newest ones.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write it again whenever something is new, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two looks of --follow.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Write the page of runs as one file that a browser opens without a server, 2 MB at most."""
    roots = [open_database(root).data_root for root in (data_root or (None,))]
    with extra("web", "rla report"):
        from rla_client.web.report import view_of, write_report
        from rla_client.web.site import Site
    own = {"where": where, "group": group, "smooth": None if smooth is None else f"{smooth:g}"}
    site = Site(roots)
    shown = view_of(site, view, {name: [value] for name, value in own.items() if value})

    def written(size: int) -> None:
        print_done({"file": str(out), "bytes": size}, f"{out}: {size / 1e6:.2f} MB", as_json=as_json)
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        write_report(out, site, shown, limit=limit, follow_s=every if follow else None, written=written)


def mcp(data_root: DataRoot = None) -> None:
    """Answer an assistant's questions about runs (Model Context Protocol on stdin and stdout), read-only."""
    database = open_database(data_root)
    database.progress = None
    with extra("mcp", "rla mcp"):
        import pandas as pd  # noqa: F401 - curves need it

        from rla_client.mcp import serve
    serve(database)


@takes_runs()
def top(*, chosen: Selection, data_root: DataRoot = None) -> None:
    """Show runs, curves, logs and machines in this terminal, live; `?` lists the keys."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ArgumentError("rla top needs a terminal\nhint: rla ls prints the runs once")
    database = open_database(data_root)
    database.progress = None  # it would write into the screen
    with extra("top", "rla top"):
        from rla_client.top import MAX_SHOWN, Source, TopApp

    def look(where: str | None) -> list[Record]:
        if where is None and not chosen.given:
            return database.records(limit=MAX_SHOWN)
        both = [f"({text})" for text in (chosen.where, where) if text]
        return replace(chosen, where=" and ".join(both) or None).records(database)

    look(None)  # a fault in the options is told before the screen changes
    TopApp(Source(database.data_root, look)).run()
