"""`rla web` and `rla report`: the page, from a server and in one file."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.options import LOOK, AsJson, Where, open_database, print_done, say
from rla_client.contract.errors import extra
from rla_client.contract.user_messages import examples

DataRoots = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-root",
        "-d",
        envvar="RLA_DATA_ROOT",
        help="A database: the folder that holds log/ (repeatable).",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=LOOK, epilog=examples("rla web", "rla web --data-root data --port 0"))(web)
    app.command(
        rich_help_panel=LOOK,
        epilog=examples("rla report report.html", 'rla report report.html --where "lr == 0.01" --follow'),
    )(report)


def web(
    data_root: DataRoots = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port; 0 picks a free one; default: the first free one from 8787.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; default: this machine only.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name under which the page may be opened (repeatable).", show_default=False
        ),
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
    view: Annotated[
        str | None,
        typer.Option(help="A view that was stored in `rla web` (Views…).", show_default=False),
    ] = None,
    where: Where = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="One curve with a band for each value of these.", show_default=False
        ),
    ] = None,
    smooth: Annotated[
        float | None, typer.Option(min=0, help="Smooth over so many points.", show_default=False)
    ] = None,
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
        facts = {"file": str(out), "bytes": size}
        print_done(facts, f"{out}: {size / 1e6:.2f} MB", as_json=as_json)
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        write_report(out, site, shown, limit=limit, follow_s=every if follow else None, written=written)
