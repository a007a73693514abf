"""Confirmation of a change by the user."""

from __future__ import annotations

import sys

import typer

from rla_client.cli.output import say_aside


def agree(question: str, yes: bool) -> None:
    """Ask the user y/n; without a terminal the answer is no, unless `yes`.

    Raises:
        typer.Exit: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        say_aside("Not a terminal: pass --yes to confirm. Nothing was changed.")
        raise typer.Exit(1)
    if not typer.confirm(question):
        raise typer.Exit(1)
