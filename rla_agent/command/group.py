"""Group of all commands: `rla-agent` itself."""

from __future__ import annotations

from typing import Annotated

import typer

from rla_client.contract import __version__
from rla_client.contract.text.command_line import examples

app = typer.Typer(
    name="rla-agent",
    help="The logging agent of this machine: stores what training processes log.",
    no_args_is_help=True,
    add_completion=True,
    epilog=examples("rla-agent start --detach", "rla-agent status"),
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rla-agent {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Store what training processes log: the logging agent of this machine."""
    del version
