"""Numbered registry of a page's runs.

A run gets a number when it is first seen and keeps it while the server runs; the page refers to runs by
number. A run whose row in the list changes gets the next *version*, so that a page asks only for the changes
since the version that it knows.

A look costs a read of the catalogue (0.1 s for 10,000 runs). Looks happen only on request, and so rarely that
they take less than `SHARE` of a core. The first look is not counted, as it may read everything.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import ArgumentError, DatabaseError, NoSuchRunError
from rla_client.database.clock import clock
from rla_client.database.database import Database
from rla_client.database.records.record import Record
from rla_client.database.run import Run
from rla_client.web.growing_cache import GrowingCache

LOOK_S = 2.0  # least time between two looks
SHARE = 0.005  # of a core
LONGEST_S = 30.0  # longest time between two looks, whatever they cost
LIVE = frozenset({"running", "stalled", "waiting", "silent", "unknown"})  # states in which rows may come


@dataclass(slots=True)
class PageRun:
    """One run of the page."""

    number: int
    place: int  # of its database among the page's
    record: Record  # as last seen
    state: str  # as last shown
    version: int  # of the last change
    gone: bool = False  # it is no longer in its database


class Site:
    """The databases of a page and their numbered runs. Its methods may be called from any thread.

    Args:
        roots: data roots, at least one.

    Raises:
        DatabaseError: a root is not a folder.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.databases = [Database(root) for root in dict.fromkeys(roots)]
        self.boot = secrets.token_hex(8)  # the run numbers are valid for this server only
        self.version = 0
        self.problems: dict[int, str] = {}
        self.read_ahead = threading.Event()  # set unless a thread reads the first panel's data in advance
        self.read_ahead.set()
        self.caches = [GrowingCache(database.state_folder) for database in self.databases]  # by place
        self._entries: list[PageRun] = []
        self._numbers: dict[tuple[int, str, str], int] = {}
        self._lock = threading.Lock()
        self._looked = -1e9
        self._cost = 0.0

    def look(self, *, wait: bool = False) -> int:
        """Update the list from the databases if a look is due; returns its version.

        Args:
            wait: wait for a look of another thread.
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
        """As `look`, but even if no look is due, since this server changed something."""
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
                self._entries.append(PageRun(len(self._entries), place, record, state, version))
            else:
                entry = self._entries[number]
                if entry.record == record and entry.state == state and not entry.gone:
                    continue
                self._entries[number] = PageRun(number, place, record, state, version)
            changed = True
        for key, number in self._numbers.items():
            entry = self._entries[number]
            if key[0] == place and key not in seen and not entry.gone:
                self._entries[number] = PageRun(number, place, entry.record, entry.state, version, gone=True)
                changed = True
        if changed:
            self.version = version

    def entries(self, since: int = 0) -> list[PageRun]:
        """The runs with a later version, including removed ones; with 0, all that exist. By number."""
        found = self._entries[:]
        return [one for one in found if one.version > since and (since or not one.gone)]

    def chosen(self, numbers: object) -> list[PageRun]:
        """The runs with these numbers, without removed ones.

        Raises:
            ArgumentError: `numbers` is not a list of integers.
        """
        if not isinstance(numbers, list) or not all(isinstance(one, int) for one in numbers):
            raise ArgumentError("a list of run numbers is needed")
        known = self._entries
        return [known[one] for one in dict.fromkeys(numbers) if 0 <= one < len(known) and not known[one].gone]

    def find(self, path: str) -> PageRun:
        """The run at `<place>/<table>/<index>`, the path in links; also an earlier item of a chain.

        Raises:
            NoSuchRunError: there is no such run.
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
            return PageRun(-1, int(place), found, found.shown_state(clock()), 0)
        raise NoSuchRunError(f"there is no run {path[:200]!r} here")

    def database(self, entry: PageRun) -> Database:
        """The database of a run."""
        return self.databases[entry.place]

    def run(self, entry: PageRun) -> Run:
        """A run as a `Run` of its database."""
        return Run(self.databases[entry.place].data_root, entry.record)


def path_of(entry: PageRun) -> str:
    """The path of a run in links; see `Site.find`."""
    return f"{entry.place}/{entry.record.table}/{entry.record.index}"


def live(entries: Iterable[PageRun]) -> list[PageRun]:
    """The runs that may still get rows."""
    return [entry for entry in entries if entry.state in LIVE]
