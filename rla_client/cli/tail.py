"""`rla tail`: the end of a run's text log or table, and what is added to it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.options import DataRoot, RunArgument, TableOption, open_database, say
from rla_client.contract.files import open_plain, written_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

FOLLOW_S = 0.5
MAX_END_BYTES = 32 << 20  # of the last lines: 20 rows of 65,536 numbers
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
    offset = _print_end(path, lines)
    if follow:
        _follow(path, offset, lambda: database.find(found.index, found.table).state in {"running", "stalled"})


def _print_end(path: Path, lines: int) -> int:
    """Print the last lines; returns the offset after them."""
    with open_plain(path) as file:
        size = written_bytes(file)
        block, start = b"", size
        while start > 0 and block.count(b"\n") <= lines and size - start < MAX_END_BYTES:
            step = min(start, 1 << 16)
            start -= step
            file.seek(start)
            block = file.read(step) + block
    shown = block.splitlines()[-lines:] if lines > 0 else []
    for line in shown:
        say(_clean_line(line))
    return size


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
