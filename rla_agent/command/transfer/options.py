"""Options of `rla-agent transfer`.

Runs (`table/YYYY/MM/DD/name`) come from the command line, or with `-` from stdin: one a line, or, for names
with line breaks in them, with a NUL after each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.replicate import master_trash

ProjectOption = Annotated[Path, typer.Option("--config", help="the project's rla_config.yaml")]
RootOption = Annotated[Path, typer.Option("--data-root", help="the local data root")]
ItemsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="table/YYYY/MM/DD/name; - reads stdin")
]
KindOption = Annotated[list[str] | None, typer.Option("--kind", help="data kind; may be given several times")]


def read_items(given: list[str]) -> list[str]:
    """The runs of a command line, or of stdin where it says `-`."""
    words = given
    if given == ["-"]:
        data = sys.stdin.buffer.read()
        words = [os.fsdecode(word) for word in data.split(b"\0" if b"\0" in data else b"\n")]
    return [master_trash.check_item(word) for word in words if word]
