"""`rla web`: live page of runs in a browser."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rla_client.cli.data_roots import DataRoots, existing_roots
from rla_client.cli.output import say
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.errors import extra


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, web, LOOK, "rla web", "rla web --data-root data --port 0")


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
    roots = existing_roots(data_root)
    with extra("web", "rla web"):
        from rla_client.web.server import serve
    serve(roots, host=host, port=port, allowed=allow_host or [], browser=browser, say=_say_now)


def _say_now(text: str) -> None:
    """Print and flush, so that a pipe or a file gets the text before the server ends."""
    say(text)
    sys.stdout.flush()
