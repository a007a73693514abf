"""`rla tail`: end of a run's text log or table."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import MOST_SHOWN, AsJson, DataRoot, RunArgument, TableOption
from rla_client.cli.output import say
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.database.text.machine_text import json_text
from rla_client.database.text.safe_text import lines_text
from rla_client.database.text_logs import TextLog, last_lines, log_path

if TYPE_CHECKING:
    from collections.abc import Callable


FOLLOW_S = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, tail, LOOK, "rla tail --follow", "rla tail seed=3 --file progress -n 5")


def tail(
    run: RunArgument = "@last",
    what: Annotated[
        TextLog, typer.Option("--file", metavar="FILE", help="log, progress, warn, backup or console.")
    ] = "log",
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=MOST_SHOWN, help="How many lines.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until the run ends.")
    ] = False,
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print the end of a run's text log or table."""
    if as_json and follow:
        raise ArgumentError("--json prints the lines that are there, so it does not --follow")
    database = open_database(data_root)
    found = database.find(run, table)
    path = log_path(found, what)
    shown, offset = last_lines(path, lines)
    if as_json:
        texts = [_clean_line(line) for line in shown]
        say(json_text({"run": found.index, "table": found.table, "file": path.name, "lines": texts}))
        return
    for line in shown:
        say(_clean_line(line))
    if follow:
        _follow(path, offset, lambda: database.find(found.index, found.table).state in {"running", "stalled"})


def _clean_line(line: bytes) -> str:
    return lines_text(line.decode("utf-8", "replace").rstrip("\r\n"))


def _follow(path: Path, offset: int, live: Callable[[], bool]) -> None:
    while True:
        going = live()
        with open_plain(path) as file:
            size = written_bytes(file)
            offset = offset if size >= offset else 0  # truncated by a resume: print it from the start
            file.seek(offset)
            block = file.read(size - offset)
        whole = block.rfind(b"\n") + 1
        for line in block[:whole].splitlines():
            say(_clean_line(line))
        sys.stdout.flush()
        offset += whole
        if not going:
            return
        time.sleep(FOLLOW_S)
