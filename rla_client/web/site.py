"""The runs of all databases of a page: numbered, kept up to date while somebody looks, and read.

A run gets a number when it is first seen and keeps it while the server runs; the page speaks of runs by
number. Each change of what the list shows of a run gives it the next *version*, so that a page asks for what
changed since the version that it knows.

A look costs what the catalogue costs (0.1 s for 10,000 runs, nothing of it while nobody looks), so looks are
as far apart as keeps them below `SHARE` of a core, the first aside, which may have had to read all. What one
run writes is seen faster, see below.

**Columns.** A settled table comes from the column cache on disk. One that was written to in the last two
seconds is not cached there and would be parsed as a whole each time; here its columns stay in memory, with
the byte behind the last row, and each look reads on from there. It is read anew where it is another file (a
column was added), got shorter, or has other bytes before that place (a resume cut it and went on).

**What is new while a page is open** reaches it by one stream of server-sent events. The page says which runs
and metrics it shows and how many rows of each it has (*cursors*). Each `TICK_S` the tables of those that may
grow are stat'ed, and of one that did, the rows behind the cursor go out; so a stream costs what is new, not
what is there. Events:

    rows     {"number", "from", "x": […], "y": {metric: […]}}: new rows; null where nothing was recorded
    anew     {"number"}: rows that it has were taken back, have another x, or are of a chain; it asks again
    version  {"version"}: the list of runs changed; it asks for those since the version that it has
    alive    {}: nothing else for `ALIVE_S`, so that a dead connection shows
"""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from anyio.to_thread import run_sync
from starlette.responses import StreamingResponse

from rla_client.contract.errors import ArgumentError, DatabaseError, NoSuchRunError
from rla_client.contract.layout import LOG, TIME_STEP, TIMESTAMP
from rla_client.database.clock import clock
from rla_client.database.curves.curve_cache import CurveCache
from rla_client.database.curves.curve_reader import Reader, read_tables
from rla_client.database.curves.progress_csv import PROGRESS_FILE, TablePart, read_part, recorded_nan
from rla_client.database.records.record import Record
from rla_client.database.runs import Database, Run
from rla_client.database.signatures import csv_signature

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LOOK_S = 2.0  # at least between two looks
SHARE = 0.005  # of a core
LONGEST_S = 30.0  # between two looks, whatever one has cost
SAFE_INTEGER = 1 << 53  # beyond, a browser's numbers are not exact
LIVE = frozenset({"running", "stalled", "waiting", "silent", "unknown"})  # may get rows
MAX_KEPT_BYTES = 64 << 20  # of all growing tables; the ones not looked at for longest go first
FIRST_ROOM = 1024  # rows
ELAPSED = "elapsed"  # seconds since a run's first row
ROW = "row"  # its number
TICK_S = 0.4
ALIVE_S = 15.0
MAX_WATCHED = 200  # runs; a panel of more is asked for anew when their list changes
MAX_ROWS = 5000  # in one event; further behind, a new curve is cheaper


@dataclass(slots=True)
class Entry:
    """One run of the page."""

    number: int
    place: int  # of its database among those of the page
    record: Record  # as last seen
    state: str  # as shown then
    version: int  # of the last change
    gone: bool = False  # it is in its database no more


class Site:
    """See the module's text. Its methods may be called from any thread.

    Args:
        roots: data roots, at least one.

    Raises:
        DatabaseError: one is not a folder.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.databases = [Database(root) for root in dict.fromkeys(roots)]
        self.boot = secrets.token_hex(8)  # numbers mean nothing to another server
        self.version = 0
        self.problems: dict[int, str] = {}
        self.read_ahead = threading.Event()  # nobody reads what the first panel will ask for
        self.read_ahead.set()
        self.caches = [GrowingCache(database.state_folder) for database in self.databases]  # of columns
        self._entries: list[Entry] = []
        self._numbers: dict[tuple[int, str, str], int] = {}
        self._lock = threading.Lock()
        self._looked = -1e9
        self._cost = 0.0

    def look(self, *, wait: bool = False) -> int:
        """Bring the list up to the databases where that is due; the version that it has then.

        Args:
            wait: where another thread looks, wait for it.
        """
        if not self._lock.acquire(blocking=wait or not self._entries):
            return self.version
        try:
            begun = time.monotonic()
            if begun - self._looked >= max(LOOK_S, min(self._cost / SHARE, LONGEST_S)):
                first = not self._entries
                for place, database in enumerate(self.databases):
                    self._look_at(place, database)
                self._looked = time.monotonic()
                self._cost = 0.0 if first else self._looked - begun
            return self.version
        finally:
            self._lock.release()

    def look_now(self) -> int:
        """As `look`, due or not: something was changed here."""
        with self._lock:
            self._looked = -1e9
        return self.look(wait=True)

    def _look_at(self, place: int, database: Database) -> None:
        try:
            records = database.records()
        except (DatabaseError, OSError) as error:
            self.problems[place] = str(error)
            return
        self.problems.pop(place, None)
        now = clock()
        version = self.version + 1
        changed = False
        seen = set()
        for record in records:
            key = (place, record.table, record.index)
            state = record.shown_state(now)
            number = self._numbers.get(key)
            seen.add(key)
            if number is None:
                self._numbers[key] = len(self._entries)
                self._entries.append(Entry(len(self._entries), place, record, state, version))
            else:
                entry = self._entries[number]
                if entry.record == record and entry.state == state and not entry.gone:
                    continue
                self._entries[number] = Entry(number, place, record, state, version)
            changed = True
        for key, number in self._numbers.items():
            entry = self._entries[number]
            if key[0] == place and key not in seen and not entry.gone:
                self._entries[number] = Entry(number, place, entry.record, entry.state, version, gone=True)
                changed = True
        if changed:
            self.version = version

    def entries(self, since: int = 0) -> list[Entry]:
        """Those whose version is later, by number; with 0 all that are there."""
        found = self._entries[:]
        return [one for one in found if one.version > since and (since or not one.gone)]

    def chosen(self, numbers: object) -> list[Entry]:
        """Those of some numbers, without what is gone.

        Raises:
            ArgumentError: it is not a list of numbers.
        """
        if not isinstance(numbers, list) or not all(isinstance(one, int) for one in numbers):
            raise ArgumentError("a list of run numbers is needed")
        known = self._entries
        return [known[one] for one in dict.fromkeys(numbers) if 0 <= one < len(known) and not known[one].gone]

    def find(self, path: str) -> Entry:
        """The run of `<place>/<table>/<index>`, as links name it; of a chain also an earlier item.

        Raises:
            NoSuchRunError: there is none.
        """
        self.look(wait=True)
        place, _, name = path.partition("/")
        parts = name.split("/")
        table, index = "/".join(parts[:-4]), "/".join(parts[-4:])
        if place.isdecimal() and len(place) < 4 and int(place) < len(self.databases):  # noqa: PLR2004
            number = self._numbers.get((int(place), table, index))
            if number is not None and not self._entries[number].gone:
                return self._entries[number]
            found = self.databases[int(place)].find(f"{table}/{index}", None).record
            return Entry(-1, int(place), found, found.shown_state(clock()), 0)
        raise NoSuchRunError(f"there is no run {path[:200]!r} here")

    def database(self, entry: Entry) -> Database:
        """Where a run lies."""
        return self.databases[entry.place]

    def run(self, entry: Entry) -> Run:
        """A run as the readers know it."""
        return Run(self.databases[entry.place], entry.record)


def path_of(entry: Entry) -> str:
    """As links name a run; see `Site.find`."""
    return f"{entry.place}/{entry.record.table}/{entry.record.index}"


def live(entries: Iterable[Entry]) -> list[Entry]:
    """Those that may still get rows."""
    return [entry for entry in entries if entry.state in LIVE]


def sent(value: object) -> Any:  # noqa: ANN401 - whatever a run has recorded
    """A value as JSON can carry it, and a browser read it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < SAFE_INTEGER else str(value)
    if isinstance(value, Mapping):
        return {str(key): sent(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sent(item) for item in value]
    return str(value)


# -- columns of tables that grow ---------------------------------------------------------------------


def read_entries(site: Site, entries: Sequence[Entry], names: Sequence[str]) -> list[dict[str, Array]]:
    """Columns of some runs, in their order; none where a table is broken, which the list of runs says."""
    found: dict[int, dict[str, Array]] = {}
    for place, database in enumerate(site.databases):
        mine = [entry for entry in entries if entry.place == place]
        pairs = [(entry.record.table, entry.record.index) for entry in mine]
        parents = zip(pairs, (entry.record.parent for entry in mine), strict=True)
        links = {pair: parent for pair, parent in parents if parent}
        reader = Reader(database.data_root, site.caches[place], links, database.lake)
        tables = read_tables(reader, pairs, list(dict.fromkeys(names))) if pairs else []
        for entry, table in zip(mine, tables, strict=True):
            found[entry.number] = {} if isinstance(table, Exception) else table
    return [found[entry.number] for entry in entries]


def x_values(table: dict[str, Array], x: str, rows: int) -> Array | None:
    """The x of each row of a table; None where it has none. Without time-steps they are the rows' numbers.

    A program that never says which step it is at has 0 in every row.
    """
    if x == ROW or (x == TIME_STEP and (TIME_STEP not in table or not table[TIME_STEP].any())):
        return np.arange(rows, dtype=np.float64)
    if x != ELAPSED:
        return table.get(x)
    stamps = table.get(TIMESTAMP)
    if stamps is None or not len(stamps):
        return None
    first = stamps[np.isfinite(stamps)][:1]
    return stamps - first[0] if first.size else None


def table_path(site: Site, entry: Entry) -> str:
    """Where the rows of a run are."""
    root = site.databases[entry.place].data_root
    return f"{root}/{LOG}/{entry.record.table}/{entry.record.index}/{PROGRESS_FILE}"


def table_stat(site: Site, entry: Entry) -> tuple[int, int] | None:
    """What tells whether a run's table got rows: inode and bytes; None where there is none."""
    with suppress(OSError):
        found = os.stat(table_path(site, entry))
        return found.st_ino, found.st_size
    return None


class GrowingCache(CurveCache):
    """A column cache that follows tables which grow. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._tables: OrderedDict[str, _Growing] = OrderedDict()
        self._lock = threading.Lock()

    def columns(self, path: str, names: Sequence[str], now_ns: int) -> dict[str, Array]:
        """As `CurveCache.columns`."""
        if path not in self._tables and csv_signature(path, now_ns)[1]:
            return super().columns(path, names, now_ns)
        with self._lock:
            table = self._tables.setdefault(path, _Growing())
            self._tables.move_to_end(path)
        with table.lock:
            found = _follow(table, path, names)
        self._drop_old()
        return found

    def _drop_old(self) -> None:
        with self._lock:
            total = sum(table.bytes for table in self._tables.values())
            while total > MAX_KEPT_BYTES and len(self._tables) > 1:
                _, table = self._tables.popitem(last=False)
                total -= table.bytes


def _follow(table: _Growing, path: str, names: Sequence[str]) -> dict[str, Array]:
    known = [*table.columns, *table.absent]
    before = table.part
    if before is None or any(name not in table.columns and name not in table.absent for name in names):
        known, before = list(dict.fromkeys([*known, *names])), None
    part = read_part(path, known, before)
    if before is not None and (part.start, part.inode) == (before.end, before.inode):
        table.add(part)
    else:
        table.begin(part, known)
    return table.give(names)


@dataclass(slots=True)
class _Growing:
    """One table."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    columns: dict[str, Array] = field(default_factory=dict)  # with room for more at the end
    rows: int = 0  # how many are there
    part: TablePart | None = None  # the last one that was read, without its columns
    absent: set[str] = field(default_factory=set)  # names that the table has not

    @property
    def bytes(self) -> int:
        """Of memory."""
        return sum(column.nbytes for column in self.columns.values())

    def begin(self, part: TablePart, names: Sequence[str]) -> None:
        """Take a whole table."""
        self.columns = {}
        self.rows = 0
        self.absent = {name for name in names if name not in part.columns}
        self.add(part)

    def add(self, part: TablePart) -> None:
        """Take further rows."""
        more = max((len(column) for column in part.columns.values()), default=0)
        for name, column in part.columns.items():
            old = self.columns.get(name, np.empty(0))
            if len(old) < self.rows + more:
                room = np.empty(max(FIRST_ROOM, (self.rows + more) * 5 // 4))
                room[: self.rows] = old[: self.rows]
                self.columns[name] = old = room
            old[self.rows : self.rows + more] = column
        self.rows += more
        self.part = replace(part, columns={})

    def give(self, names: Sequence[str]) -> dict[str, Array]:
        """The columns that there are; not to be changed, and not changed later."""
        return {name: self.columns[name][: self.rows] for name in names if name in self.columns}


# -- what is new -------------------------------------------------------------------------------------


def stream(site: Site, asked: dict[str, Any]) -> StreamingResponse:
    """Events for one page, until it goes away.

    Args:
        site: whose runs.
        asked: `version` of its list; `x`; `cursors`: metric → run number → rows that it has; `once`: only
            what is new by now, for a page that must not hold one of its browser's few connections.

    Raises:
        ArgumentError: something of that is not as it should be.
    """
    watcher = Watcher(site, asked)

    async def events() -> AsyncIterator[bytes]:
        said = time.monotonic()
        yield _event("alive", {})
        while True:
            found = await run_sync(watcher.look)
            now = time.monotonic()
            if found:
                yield b"".join(_event(event, data) for event, data in found)
                said = now
            elif now - said > ALIVE_S:
                yield _event("alive", {})
                said = now
            if asked.get("once"):
                return
            await anyio.sleep(TICK_S)

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Watcher:
    """What one page has, and what is new to it; see the module's text."""

    def __init__(self, site: Site, asked: dict[str, Any]) -> None:
        self._site = site
        version = asked.get("version", 0)
        self._version = version if isinstance(version, int) else 0
        self._x = str(asked.get("x") or TIME_STEP)
        self._cursors = _checked(asked.get("cursors", {}))
        self._watched = list(dict.fromkeys(number for known in self._cursors.values() for number in known))
        self._stats: dict[int, tuple[int, int]] = {}

    def look(self) -> list[tuple[str, dict[str, Any]]]:
        """Events since the last look."""
        found = list(self._new_rows())
        version = self._site.look()
        if version != self._version:
            self._version = version
            found.append(("version", {"version": version}))
        return found

    def _new_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for entry in live(self._site.chosen(self._watched))[:MAX_WATCHED]:
            stat = table_stat(self._site, entry)
            if stat is None:
                continue
            before = self._stats.get(entry.number)
            self._stats[entry.number] = stat
            if entry.record.parent and before not in {None, stat}:
                yield "anew", {"number": entry.number}
            elif before != stat and not entry.record.parent:
                yield from self._rows_of(entry)

    def _rows_of(self, entry: Entry) -> Iterator[tuple[str, dict[str, Any]]]:
        number = entry.number
        metrics = [metric for metric, known in self._cursors.items() if number in known]
        table = self._table(entry, metrics)
        news: dict[int, dict[str, Any]] = {}  # by cursor: panels are as far as each other, as a rule
        for metric in metrics:
            ys = table.get(metric)
            xs = None if ys is None else x_values(table, self._x, len(ys))
            if ys is None or xs is None:
                continue
            before = self._cursors[metric][number]
            self._cursors[metric][number] = len(ys)
            if len(ys) < before or len(ys) - before > MAX_ROWS or self._renumbered(table, before):
                yield "anew", {"number": number}
                return
            if len(ys) > before:
                same = news.setdefault(
                    before, {"number": number, "from": before, "x": _plain(xs[before:]), "y": {}}
                )
                same["y"][metric] = _plain(ys[before:])
        for data in news.values():
            yield "rows", data

    def _renumbered(self, table: Mapping[str, Array], before: int) -> bool:
        """Whether rows that the page has at their numbers have a time-step now: the first that is not 0."""
        steps = table.get(TIME_STEP)
        if self._x != TIME_STEP or steps is None or before < 2:  # noqa: PLR2004 - row 0 has time-step 0
            return False
        return bool(steps.any() and not steps[:before].any())

    def _table(self, entry: Entry, metrics: list[str]) -> dict[str, Array]:
        names = [*dict.fromkeys([TIME_STEP, TIMESTAMP, self._x, *metrics])]
        with suppress(DatabaseError, OSError):
            cache = self._site.caches[entry.place]
            return cache.columns(table_path(self._site, entry), names, time.time_ns())
        return {}


def _plain(values: Array) -> list[float | str | None]:
    recorded = recorded_nan(values)
    return [
        value if math.isfinite(value) else str(value) if is_nan or not math.isnan(value) else None
        for value, is_nan in zip(values.tolist(), recorded.tolist(), strict=True)
    ]


def _checked(cursors: object) -> dict[str, dict[int, int]]:
    """Metric → run number → rows; ArgumentError: it is something else."""
    try:
        if not isinstance(cursors, dict):
            raise TypeError  # noqa: TRY301 - told below
        return {
            str(metric): {int(number): int(rows) for number, rows in known.items()}
            for metric, known in cursors.items()
        }
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError("cursors must be metric → run → rows") from error
