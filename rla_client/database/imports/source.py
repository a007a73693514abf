"""A run of another tool on its way into a database.

A reader finds runs (`ForeignRun`, cheap) and reads one at a time (`RunContent`). A run's index is made of its
start and of a name that holds the tool's own id, so whoever imports again finds the run there and leaves it;
run.json keeps tool and id under `imported`.

What is read may come from anybody. Names become a table, an index or a file only through `table_name`,
`layout.make_info` and `files_below`; values become cells; nothing is unpickled, and no path that a foreign
record names is opened. Files are copied from the run's own folder, links left out.
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
File = tuple[Path, str]  # where it lies; its path below the item, or a folder of it


@dataclass(frozen=True, slots=True)
class RunContent:
    """The content of one run.

    Attributes:
        columns: of progress.csv.
        rows: cells as text, may be read once.
        params: hyper-parameters.
        events: event files to copy, links left out; their paths are below `tb/events`.
        text: text log to copy, where there is one that is no link.
        state: content of the item's run.json; empty makes none.
        environment: content of the item's environment.json; empty makes none.
        tags: as the tool has them.
        note: free text.
        files: images, videos and other files for the item in `results`.
        tables: path below the item in `results` → names of columns, rows of any cells.
        remarks: what a reader of its values should know, the same words for all runs alike.
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
        name: what tells it from others of the same start, for people.
        began: its start, Unix seconds; what no calendar has counts as 0.
        read: reads it.
        table: the project or experiment that it belongs to, empty without one.
        secrets: parameters whose secret values are hidden in the name.
    """

    name: str
    began: float
    read: Callable[[], RunContent]
    table: str = ""
    secrets: Mapping[str, Any] = field(default_factory=dict)

    @property
    def index(self) -> str:
        """The index of the item, always the same for the same run."""
        shown = Secrets.of(self.secrets).verbatim(self.name)
        pairs = [("source", shown)] if shown not in {"", "."} else []
        began = self.began if 0 <= self.began < MAX_TIME else 0.0
        return RunIndex.make(datetime.fromtimestamp(began), NO_IP, make_info(pairs)).path  # noqa: DTZ006


UNREADABLE = (  # what reading a foreign file may end in
    DatabaseError, OSError, sqlite3.Error, struct.error, csv.Error, ValueError, TypeError, LookupError,
    AttributeError, OverflowError, RecursionError,
)  # fmt: skip
Look = tuple[
    str, Callable[[], ForeignRun]
]  # what is looked at, for messages; the look, which raises `UNREADABLE`


def failed(where: str, error: Exception) -> Look:
    """A look at what cannot be read."""

    def fail() -> ForeignRun:
        raise error

    return where, fail


def look(read: Callable[[Path], tuple[float, RunContent]], path: Path, folder: Path) -> ForeignRun:
    """A run whose start only its rows tell: it is read at once."""
    began, source = read(path)
    name = path.name if path == folder else os.fspath(path.relative_to(folder))
    return ForeignRun(name, began, lambda: source, secrets=source.params)


def guarded(where: str, looks: Iterable[Look]) -> Iterator[Look]:
    """Looks at the runs of one place; where it cannot be read, a last one that says so."""
    try:
        yield from looks
    except UNREADABLE as error:
        yield failed(where, error)


def run_state(tool: str, name: str, state: str | None = None, **told: object) -> dict[str, Any]:
    """Content of run.json.

    Args:
        tool: where the run comes from.
        name: its id there.
        state: of the agent's states; None where the tool does not say how it ended.
        **told: further fields: opened, closed, reason, exit_code, user, host. None is left out.
    """
    told = {key: value for key, value in told.items() if value is not None}
    if state is None:
        told.setdefault("reason", f"{tool} does not say how it ended")
    return {"format": 1, "state": state or UNKNOWN, **told, "imported": {"from": tool, "id": name}}


def table_name(text: str) -> str:
    """A project's name as one folder below a kind."""
    plain = re.sub(r"[\x00-\x20\x7f/\\]+", "_", text).lstrip(".").encode("utf-8", "replace")
    name = plain[:MAX_TABLE_BYTES].decode("utf-8", "ignore")
    return DEFAULT_TABLE if not name or component_problem(name) else name


def run_name(title: object, name: object) -> str:
    """What a run is called: its title as one word, and the id that the tool gave it."""
    return ".".join(filter(None, ("-".join(str(title or "").split()), str(name)[:16])))


def files_below(folder: Path, *, but: Sequence[str] = ()) -> list[File]:
    """Plain files below a folder; links, pipes and names that no item may have are left out."""
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
