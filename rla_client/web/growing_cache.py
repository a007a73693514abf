"""Column cache of growing tables.

A settled table comes from the column cache on disk. A table that was written to in the last two seconds is
not cached there and would be parsed completely each time. Its columns stay in memory here, with the offset
behind the last row, and each call reads on from that offset. The table is read anew if it is another file (a
column was added), became shorter, or has other bytes before the offset (a resume truncated it).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rla_client.database.change_signatures import csv_signature
from rla_client.database.curves.curve_cache import CurveCache
from rla_client.database.curves.progress_csv import TablePart, read_part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
MAX_KEPT_BYTES = 64 << 20  # of all growing tables; the least recently used are dropped first
FIRST_ROOM = 1024  # rows


class GrowingCache(CurveCache):
    """A column cache that follows growing tables. It may be used from several threads."""

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
    """The columns of one growing table."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    columns: dict[str, Array] = field(default_factory=dict)  # with spare room at the end
    rows: int = 0  # rows that are filled
    part: TablePart | None = None  # the last part that was read, without its columns
    absent: set[str] = field(default_factory=set)  # columns that the table does not have

    @property
    def bytes(self) -> int:
        """Memory of the columns."""
        return sum(column.nbytes for column in self.columns.values())

    def begin(self, part: TablePart, names: Sequence[str]) -> None:
        """Replace all columns by those of a complete table."""
        self.columns = {}
        self.rows = 0
        self.absent = {name for name in names if name not in part.columns}
        self.add(part)

    def add(self, part: TablePart) -> None:
        """Append rows."""
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
        """Those of the named columns that the table has, as views that must not be modified."""
        return {name: self.columns[name][: self.rows] for name in names if name in self.columns}
