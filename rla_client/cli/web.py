"""`rla web`: the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.options import open_database, say
from rla_client.contract.extras import extra


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(web)


def web(
    data_root: Annotated[
        list[Path] | None,
        typer.Option(
            "--data-root",
            "-d",
            envvar="RLA_DATA_ROOT",
            help="A database: the folder that holds log/ (repeatable).",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="0 for any; by default the first free one from 8787.", show_default=False
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; by default this machine only.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name that the page may be called by (repeatable).", show_default=False),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open one where there is a screen.")
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
