"""What `rla top` shows, read from the files of a data root; every method may be called from a thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.database.csv_table import sample_rows
from rla_client.database.curves import Points, chart_points
from rla_client.database.live import fleet_files
from rla_client.database.records import PROGRESS_FILE, Record, clock, numeric
from rla_client.database.side_files import last_lines
from rla_client.database.text import lines_text

MAX_SHOWN = 1000  # runs in the list, the newest; a filter looks at all
LOG_LINES = 200
LOG_BYTES = 256 << 10  # of the end of a log, at most
SYSTEM_FILE = "system.csv"
_Read = TypeVar("_Read")
SYSTEM = ("cpu_percent", "rss_bytes", "gpu_percent", "gpu_memory_bytes", "disk_used_percent")
LOG_FILE = "log.txt"

RunName = tuple[str, str]  # table, index
Look = Callable[[str | None], list[Record]]  # the runs that pass a filter


@dataclass(slots=True)
class Source:
    """A database, and what was read of it last: a file that did not change is not read again."""

    data_root: Path
    look: Look
    _known: dict[tuple[str, ...], tuple[tuple[int, int, int], Any]] = field(default_factory=dict)

    def runs(self, where: str | None) -> list[Record]:
        """The newest `MAX_SHOWN` of the runs: live ones first, then by age.

        Args:
            where: a filter beside what `look` is limited to, see `rla_client.database.where`.

        Raises:
            DatabaseError, ArgumentError: the filter is not understood, or no run has one of its names.
        """
        now = clock()
        found = sorted(self.look(where), key=lambda record: record.opened)[-MAX_SHOWN:]
        return sorted(found, key=lambda record: (not record.is_live(now), -record.opened, record.index))

    def metrics(self, records: Sequence[Record]) -> list[str]:
        """Columns with numbers of some runs, in the order of the first one's file."""
        return list(dict.fromkeys(name for record in records for name in numeric(record.metrics)))

    def curve(self, run: RunName, metric: str) -> Points:
        """Points of one metric of a run; none where it has none or its table is broken."""
        path = self._path(run, PROGRESS_FILE)

        def read() -> Points:
            points, _ = chart_points(self.data_root, *run, [metric])
            return points.get(metric, [])

        found: Points = self._read((*run, metric), path, read) or []
        return found

    def system(self, run: RunName) -> dict[str, Points]:
        """The columns `SYSTEM` of a run's system.csv, over minutes since it was opened."""
        path = self._path(run, SYSTEM_FILE)

        def read() -> dict[str, Points]:
            columns = sample_rows(path, ["seconds", *SYSTEM]).columns
            seconds = columns.pop("seconds", [])
            return {
                name: [
                    (second / 60, cell)
                    for second, cell in zip(seconds, cells, strict=True)
                    if second is not None and cell is not None
                ]
                for name, cells in columns.items()
            }

        found: dict[str, Points] = self._read((*run, SYSTEM_FILE), path, read) or {}
        return found

    def log(self, run: RunName) -> str:
        """The end of what a run printed through its logger, without control characters."""
        path = self._path(run, LOG_FILE)

        def read() -> str:
            lines, _ = last_lines(path, LOG_LINES, LOG_BYTES)
            return "\n".join(lines_text(line.decode("utf-8", "replace").rstrip("\r")) for line in lines)

        return self._read((*run, LOG_FILE), path, read) or ""

    def fleet(self) -> list[dict[str, Any]]:
        """Machines that replicate into this data root, newest word first; none where it is not a master's."""
        return sorted(fleet_files(self.data_root), key=lambda machine: machine["age_s"])

    def _path(self, run: RunName, name: str) -> Path:
        return Path(self.data_root, LOG, *run, name)

    def _read(self, key: tuple[str, ...], path: Path, read: Callable[[], _Read]) -> _Read | None:
        """What was read of a file last, while it is as it was; None where it cannot be read."""
        try:
            found = os.stat(path)
            stat = (found.st_ino, found.st_size, found.st_mtime_ns)
            if key not in self._known or self._known[key][0] != stat:
                if len(self._known) > MAX_SHOWN:
                    self._known.clear()
                self._known[key] = (stat, read())
        except (OSError, DatabaseError):
            return None
        kept: _Read = self._known[key][1]
        return kept
