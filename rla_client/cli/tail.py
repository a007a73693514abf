"""`rla tail`: the end of a run's text log or table, and what is added to it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.options import DataRoot, RunArgument, TableOption, open_database, say
from rla_client.contract.files import open_plain, written_bytes
from rla_client.database.log_end import last_lines

if TYPE_CHECKING:
    from collections.abc import Callable

FOLLOW_S = 0.5
_TAIL_FILES = {
    "log": "log.txt",
    "progress": "progress.csv",
    "warn": "warn.txt",
    "backup": "backup.txt",
    "console": "console.txt",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tail)


def tail(
    run: RunArgument = "@last",
    what: Annotated[str, typer.Option("--file", help="log, progress, warn, backup or console.")] = "log",
    lines: Annotated[int, typer.Option("--lines", "-n", help="Last so many lines.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while the run is live.")] = False,
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Print the end of a run's text log or table."""
    from rla_client.contract.errors import DatabaseError
    from rla_client.contract.layout import LOG
    from rla_client.contract.spelling import unknown
    from rla_client.database.records import shown_name

    if what not in _TAIL_FILES:
        raise unknown(what, _TAIL_FILES, f"there is no --file {what!r}")
    database = open_database(data_root)
    found = database.find(run, table)
    path = Path(found.folder(LOG), _TAIL_FILES[what])
    if not path.exists():
        there = [name for name, file in _TAIL_FILES.items() if Path(found.folder(LOG), file).exists()]
        name = shown_name(found.table, found.index)
        message = f"{name} has no {path.name}; it has: {', '.join(there) or 'no log'}"
        raise DatabaseError(message)
    shown, offset = last_lines(path, lines)
    for line in shown:
        say(_clean_line(line))
    if follow:
        _follow(path, offset, lambda: database.find(found.index, found.table).state in {"running", "stalled"})


def _clean_line(line: bytes) -> str:
    from rla_client.database.text import lines_text

    return lines_text(line.decode("utf-8", "replace").rstrip("\r\n"))


def _follow(path: Path, offset: int, live: Callable[[], bool]) -> None:
    while True:
        going = live()
        with open_plain(path) as file:
            size = written_bytes(file)
            file.seek(offset if size >= offset else 0)  # cut by a resume: from the start
            block = file.read(size - file.tell())
        whole = block.rfind(b"\n") + 1
        for line in block[:whole].splitlines():
            say(_clean_line(line))
        sys.stdout.flush()
        offset = (offset if size >= offset else 0) + whole
        if not going:
            return
        time.sleep(FOLLOW_S)
