"""A run of another tool on its way into a database: what a reader gives, and how it becomes an item.

A reader finds runs (`Found`, cheap) and reads one at a time (`Source`). A run's index is made of its start
and of a name that holds the tool's own id of it, so whoever imports again finds the run there and leaves
it; run.json keeps tool and id under `imported`.

What is read may come from anybody. Names become a table, an index or a file only through `table_name`,
`layout.make_info` and `files_below`; values become cells; nothing is unpickled, and no path that a foreign
record names is opened. Files are copied from the run's own folder, links left out. An SQLite file and its
folder are not written to: a database with a journal beside it is copied first. Only real tables of it are
read, since a view or a virtual table is a program of whoever made the file.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rla_client.code.secret_values import Secrets
from rla_client.contract.errors import BrokenFileError, DatabaseError, extra
from rla_client.contract.filesystem.plain_files import open_plain, sqlite_address
from rla_client.contract.layout import (
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    TIME_STEP,
    TIMESTAMP,
)
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.run_index import RunIndex, make_info
from rla_client.contract.safe_names import component_problem
from rla_client.contract.spool.protocol import MAX_KEYS_PER_ROW
from rla_client.contract.text.bounded_parsing import MAX_VALUES, parse_json
from rla_client.contract.text.csv_lines import write_rows
from rla_client.database.csv_table import PROGRESS_FILE
from rla_client.database.environment import ENVIRONMENT_FILE
from rla_client.database.records import MAX_TIME, NOTE_FILE, UNKNOWN
from rla_client.database.tools import MAX_TAG_CHARACTERS, NOTE_FORMAT

DEFAULT_TABLE = "imported"
MAX_TABLE_BYTES = 100
PARQUET_ROWS = 10_000
MAX_CELL_BYTES = 64 << 20  # of SQLite: a record of one step, a configuration
MAX_CELLS = 100_000_000  # of one run, empty ones too: 100 MB of commas
_SQLITE = b"SQLite format 3\0"
_SQLITE_LENGTH = 0  # SQLITE_LIMIT_LENGTH
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
Point = tuple[str, float, float, Any]  # name, step, Unix seconds, value
File = tuple[Path, str]  # where it lies; its path below the item, or a folder of it


@dataclass(frozen=True, slots=True)
class Source:
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
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Found:
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
    read: Callable[[], Source]
    table: str = ""
    secrets: Mapping[str, Any] = field(default_factory=dict)

    @property
    def index(self) -> str:
        """The index of the item, always the same for the same run."""
        shown = Secrets.of(self.secrets).verbatim(self.name)
        pairs = [("source", shown)] if shown not in {"", "."} else []
        began = self.began if 0 <= self.began < MAX_TIME else 0.0
        return RunIndex.make(datetime.fromtimestamp(began), "noip", make_info(pairs)).path  # noqa: DTZ006


UNREADABLE = (  # what reading a foreign file may end in
    DatabaseError, OSError, sqlite3.Error, struct.error, csv.Error, ValueError, TypeError, LookupError,
    AttributeError, OverflowError, RecursionError,
)  # fmt: skip
Look = tuple[str, Callable[[], Found]]  # what is looked at, for messages; the look, which raises `UNREADABLE`


def failed(where: str, error: Exception) -> Look:
    """A look at what cannot be read."""

    def fail() -> Found:
        raise error

    return where, fail


def look(read: Callable[[Path], tuple[float, Source]], path: Path, folder: Path) -> Found:
    """A run whose start only its rows tell: it is read at once."""
    began, source = read(path)
    name = path.name if path == folder else os.fspath(path.relative_to(folder))
    return Found(name, began, lambda: source, secrets=source.params)


def guarded(where: str, looks: Iterable[Look]) -> Iterator[Look]:
    """Looks at the runs of one place; where it cannot be read, a last one that says so."""
    try:
        yield from looks
    except UNREADABLE as error:
        yield failed(where, error)


def write(folder: Path, source: Source) -> tuple[str, ...]:
    """Write the items of a run into a fresh folder, each under its kind.

    Returns:
        The kinds, in the order in which they are to appear: the log last.

    Raises:
        BrokenFileError: a file that was to be copied cannot be read.
        OSError: no space and the like.
    """
    secrets = Secrets.of(source.params)
    log = folder / LOG
    for kind in (LOG, HYPARAMETER):
        (folder / kind).mkdir(parents=True)
        _write_json(folder / kind / f"{HYPARAM_FILE_NAME}.json", secrets.parameters(source.params), sort=True)
    with (log / PROGRESS_FILE).open("w", encoding="utf-8", errors="replace", newline="") as file:
        write_rows(file, [source.columns])
        write_rows(file, source.rows)
    if source.state:
        _write_json(log / RUN_FILE, dict(source.state))
    if source.environment:
        _write_json(log / ENVIRONMENT_FILE, secrets.parameters(source.environment))
    tags = [tag for tag in map(plain_tag, source.tags) if tag]
    if tags or source.note:
        note = secrets.text(source.note)
        _write_json(log / NOTE_FILE, {"format": NOTE_FORMAT, "tags": list(dict.fromkeys(tags)), "note": note})
    if source.text is not None and os.path.isfile(source.text) and not os.path.islink(source.text):
        copy(source.text, log / "log.txt")
    for path, name in source.events:
        if not path.is_symlink():
            copy(path, log / "tb" / "events" / name)
    for path, name in source.files:
        copy(path, folder / OTHER_RESULTS / name)
    return (HYPARAMETER, *((OTHER_RESULTS,) if source.files else ()), LOG)


def _write_json(path: Path, content: Mapping[Any, Any], *, sort: bool = False) -> None:
    text = json.dumps(content, indent=1, sort_keys=sort, default=str)
    path.write_text(text, encoding="utf-8", errors="replace")


def copy(source: Path, target: Path, *, links: bool = False) -> None:
    """Copy a plain file with its time; the one that a link leads to where `links` are followed.

    Raises:
        BrokenFileError: it is none, or cannot be opened.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        old = open_plain(source, links=links)
    except OSError as error:
        raise BrokenFileError(os.fspath(source), error.strerror or str(error)) from error
    with old, target.open("wb") as new:
        shutil.copyfileobj(old, new, 1 << 20)
        stamp = os.fstat(old.fileno()).st_mtime_ns
    os.utime(target, ns=(stamp, stamp))


def table_of(points: Iterable[Point]) -> tuple[list[str], Iterator[list[str]]]:
    """Columns and rows: a row for each step, and further ones where a name has several values there.

    Raises:
        ValueError: more columns or cells than one file may have.
    """
    cells: dict[tuple[float, int], dict[str, str]] = {}
    times: dict[tuple[float, int], float] = {}
    again: Counter[tuple[str, float]] = Counter()
    names: set[str] = set()
    for given, step, when, value in points:
        text, name = cell(value), _CONTROL.sub("_", given)  # a header is one line
        key = (step, 0)
        if name in cells.get(key, ()):
            again[name, step] += 1
            key = (step, again[name, step])
        names.add(name)
        cells.setdefault(key, {})[name] = text
        times[key] = max(when, times.get(key, 0.0))
    ordered = sorted(names)
    if len(ordered) > MAX_KEYS_PER_ROW or len(ordered) * len(cells) > MAX_CELLS:
        message = f"{len(ordered)} metrics in {len(cells)} rows are more than one progress.csv may have"
        raise ValueError(message)
    columns = [f"_{name}" if name in {TIME_STEP, TIMESTAMP} else name for name in ordered]
    rows = (
        [*(cells[key].get(name, "") for name in ordered), str(key[0]), repr(times[key])]
        for key in sorted(cells)
    )
    return [*columns, TIME_STEP, TIMESTAMP], rows


def cell(value: object) -> str:
    """A value as progress.csv has it: floats by repr, which gives the same bits back; lists as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str)
    return "" if value is None else repr(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values under dotted names; a file of wandb or trackio (`_type`) is its path."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            yield name, value
        elif "_type" not in value:
            yield from flat(value, f"{name}.")
        else:
            yield name, value.get("path") or value.get("file_path") or value


def typed(text: str) -> object:
    """The number or truth value that a text is the spelling of, else the text: "0.1" but not "007"."""
    known = {"True": True, "False": False, "None": None}
    if text in known:
        return known[text]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if repr(value) == text:
            return value
    return text


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


def plain_tag(text: str) -> str:
    """A tag as `rla tag` takes it; empty where nothing is left."""
    words = "-".join(text.replace(",", " ").split())
    return "".join(filter(str.isprintable, words))[:MAX_TAG_CHARACTERS].encode("utf-8", "replace").decode()


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


def seconds_of(value: str | float | None) -> float | None:
    """Unix seconds of a foreign time: a number, or ISO text (UTC where it names no zone); None without."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        when = datetime.fromisoformat(value.replace("Z", "+00:00"))
        value = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    found = float(value)
    return found if 0 <= found < MAX_TIME else None


def read_object(path: Path, data: bytes | str, max_values: int = MAX_VALUES) -> dict[str, Any]:
    """A JSON object out of a foreign record.

    Raises:
        BrokenFileError: it is none, or beyond all bounds.
    """
    try:
        found = parse_json(data.encode() if isinstance(data, str) else data, max_values)
    except ValueError as error:
        raise BrokenFileError(os.fspath(path), f"no valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise BrokenFileError(os.fspath(path), "a record is not a JSON object")
    return found


def parquet_rows(
    path: Path,
    what: str,
    columns: list[str] | None = None,
    filters: list[tuple[str, str, object]] | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, as Python's objects some at a time.

    Args:
        path: the file.
        what: needs pyarrow, for the message.
        columns: only these.
        filters: only rows that fit, as pyarrow takes them.

    Raises:
        BrokenFileError: it is no Parquet file, or lacks what was chosen.
        MissingExtraError: pyarrow is not installed.
    """
    with extra("parquet", what):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with open_plain(path, links=True) as file:
        try:
            found = pq.read_table(file, columns=columns, filters=filters)
            for batch in found.to_batches(max_chunksize=PARQUET_ROWS):
                yield from batch.to_pylist()
        except pa.ArrowException as error:
            raise BrokenFileError(os.fspath(path), str(error)) from error


@contextmanager
def sqlite_store(path: Path) -> Iterator[sqlite3.Connection]:
    """The database at `path`; rows come as dicts.

    Raises:
        BrokenFileError: it is none.
        OSError: it cannot be opened.
    """
    with open_plain(path, links=True) as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            raise BrokenFileError(os.fspath(path), "it is not an SQLite database")
    with ExitStack() as held:
        source, mode = path.absolute(), "mode=ro&immutable=1"
        journals = [Path(f"{source}-{kind}") for kind in ("wal", "journal")]
        if any(journal.exists() for journal in journals):
            copies = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="rla-import-")))
            for one in (source, *filter(Path.exists, journals)):
                copy(one, copies / one.name, links=True)
            source, mode = copies / source.name, "mode=rw"
        connection = sqlite3.connect(sqlite_address(source, mode), uri=True)
        held.callback(connection.close)
        if hasattr(connection, "setlimit"):
            connection.setlimit(_SQLITE_LENGTH, MAX_CELL_BYTES)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.row_factory = lambda cursor, row: {
            name[0]: value for name, value in zip(cursor.description, row, strict=True)
        }
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
        except sqlite3.Error as error:
            raise BrokenFileError(os.fspath(path), str(error)) from error
        yield connection


def sqlite_rows(
    connection: sqlite3.Connection, table: str, where: str = "", value: object = None, order: str = "rowid"
) -> Iterator[dict[str, Any]]:
    """All columns of a table's rows.

    Args:
        connection: from `sqlite_store`.
        table: a name of ours.
        where: a column of ours that has `value`; empty: every row.
        value: see above.
        order: columns of ours.

    Raises:
        ValueError: there is no such table, or it is a view or a virtual table.
        sqlite3.Error: the file is broken.
    """
    told = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if told is None or told["type"] != "table" or "VIRTUAL" in str(told["sql"]).upper().split()[:2]:
        message = f"it has no table {table}"
        raise ValueError(message)
    condition, values = (f'WHERE "{where}" = ?', (value,)) if where else ("", ())
    yield from connection.execute(f'SELECT * FROM "{table}" {condition} ORDER BY {order}', values)  # noqa: S608
