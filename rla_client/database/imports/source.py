"""Foreign run to import.

A reader lists runs (`ForeignRun`, cheap) and reads one at a time (`RunContent`). A run's index consists of
its start and a name that includes the tool's own id, so that a repeated import recognizes the run and
skips it; run.json keeps tool and id under `imported`.

Foreign files are untrusted. Names become a table, an index or a file only through `table_name`,
`layout.make_info` and `files_below`; values become cells; nothing is unpickled, and no path from a foreign
record is opened. Files are copied from the run's own folder, without links.
"""

from __future__ import annotations

import csv
import os
import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rla_client.code.run_secrets import Secrets
from rla_client.contract.errors import DatabaseError
from rla_client.contract.run_index import NO_IP, RunIndex, make_info
from rla_client.contract.safe_names import component_problem
from rla_client.database.records.record import UNKNOWN
from rla_client.database.records.record_reader import MAX_TIME

DEFAULT_TABLE = "imported"
MAX_TABLE_BYTES = 100
Point = tuple[str, float, float, Any]  # name, step, Unix seconds, value
File = tuple[Path, str]  # source; path below the item, or below a folder of the item


@dataclass(frozen=True, slots=True)
class RunContent:
    """The content of one run.

    Attributes:
        columns: columns of progress.csv.
        rows: cells as text; can be iterated once.
        params: hyper-parameters.
        events: event files to copy, except links; their paths are below `tb/events`.
        text: text log to copy, unless it is a link; None without one.
        state: content of the item's run.json; empty makes none.
        environment: content of the item's environment.json; empty makes none.
        tags: tags in the tool's spelling.
        note: free text.
        files: images, videos and other files for the item in `results`.
        tables: path below the item in `results` → names of columns, rows of any cells.
        remarks: notes for readers of the values, in the same words for all runs of a kind.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    params: Mapping[str, Any]
    events: Sequence[File] = ()
    text: Path | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    note: str = ""
    files: Sequence[File] = ()
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]] = field(default_factory=dict)
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """A run that can be imported.

    Attributes:
        name: name for people, unique among runs of the same start.
        began: its start, Unix seconds; values out of range count as 0.
        read: reads it.
        table: its project or experiment, empty without one.
        secrets: parameters whose secret values are hidden in the name.
    """

    name: str
    began: float
    read: Callable[[], RunContent]
    table: str = ""
    secrets: Mapping[str, Any] = field(default_factory=dict)

    @property
    def index(self) -> str:
        """Index of the item; the same at every import of the run."""
        shown = Secrets.of(self.secrets).verbatim(self.name)
        pairs = [("source", shown)] if shown not in {"", "."} else []
        began = self.began if 0 <= self.began < MAX_TIME else 0.0
        return RunIndex.make(datetime.fromtimestamp(began), NO_IP, make_info(pairs)).path  # noqa: DTZ006


UNREADABLE = (  # errors that a broken foreign file may cause
    DatabaseError, OSError, sqlite3.Error, struct.error, csv.Error, ValueError, TypeError, LookupError,
    AttributeError, OverflowError, RecursionError,
)  # fmt: skip
Look = tuple[
    str, Callable[[], ForeignRun]
]  # place, for messages; function that opens the run, and raises `UNREADABLE`


def failed(where: str, error: Exception) -> Look:
    """A look that raises an error."""

    def fail() -> ForeignRun:
        raise error

    return where, fail


def look(read: Callable[[Path], tuple[float, RunContent]], path: Path, folder: Path) -> ForeignRun:
    """A run that is read at once, because only its rows tell its start."""
    began, source = read(path)
    name = path.name if path == folder else os.fspath(path.relative_to(folder))
    return ForeignRun(name, began, lambda: source, secrets=source.params)


def guarded(where: str, looks: Iterable[Look]) -> Iterator[Look]:
    """Looks of one place, followed by one that raises the error if the place cannot be read."""
    try:
        yield from looks
    except UNREADABLE as error:
        yield failed(where, error)


def run_state(tool: str, name: str, state: str | None = None, **fields: object) -> dict[str, Any]:
    """Content of run.json.

    Args:
        tool: the tool that wrote the run.
        name: id of the run in the tool.
        state: one of the agent's states; None if the tool does not record it.
        **fields: further fields: opened, closed, reason, exit_code, user, host; None values are left out.
    """
    fields = {key: value for key, value in fields.items() if value is not None}
    if state is None:
        fields.setdefault("reason", f"{tool} does not say how it ended")
    return {"format": 1, "state": state or UNKNOWN, **fields, "imported": {"from": tool, "id": name}}


def table_name(text: str) -> str:
    """Name of a task table for a project's name."""
    plain = re.sub(r"[\x00-\x20\x7f/\\]+", "_", text).lstrip(".").encode("utf-8", "replace")
    name = plain[:MAX_TABLE_BYTES].decode("utf-8", "ignore")
    return DEFAULT_TABLE if not name or component_problem(name) else name


def run_name(title: object, name: object) -> str:
    """Name of a run: its title as one word, and its id in the tool."""
    return ".".join(filter(None, ("-".join(str(title or "").split()), str(name)[:16])))


def files_below(folder: Path, *, but: Sequence[str] = ()) -> list[File]:
    """Regular files below a folder, without links, pipes and names that are not allowed in an item."""
    found = []
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            below = os.fspath(path.relative_to(folder))
            fits = not any(map(component_problem, below.split("/"))) and not name.startswith(".")
            if fits and below not in but and path.is_file() and not path.is_symlink():
                found.append((path, below))
    return found
