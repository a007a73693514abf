"""Data of the screen, read again only if a file changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.database.clock import clock
from rla_client.database.curves.chart_points import Points, chart_points, sample_rows
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.curves.stream_tables import split_role, table_of
from rla_client.database.records.fleet import fleet_files
from rla_client.database.records.likely_metric import numeric
from rla_client.database.records.record import Record
from rla_client.database.text.safe_text import lines_text
from rla_client.database.text_logs import last_lines

MAX_SHOWN = 1000  # runs in the list, the newest; a filter sees all
LOG_LINES = 200
LOG_BYTES = 256 << 10  # of the end of a log, at most
SYSTEM_FILE = "system.csv"
SYSTEM = ("cpu_percent", "rss_bytes", "gpu_percent", "gpu_memory_bytes", "disk_used_percent")
LOG_FILE = "log.txt"
_Read = TypeVar("_Read")
RunName = tuple[str, str]  # table, index
Look = Callable[[str | None], list[Record]]  # returns the runs that match a filter


@dataclass(slots=True)
class RunsOnScreen:
    """The data of a database; a file that did not change is not read again."""

    data_root: Path
    look: Look
    _known: dict[tuple[str, ...], tuple[tuple[int, int, int], Any]] = field(default_factory=dict)

    def runs(self, where: str | None) -> list[Record]:
        """The newest `MAX_SHOWN` runs that match a filter, live ones first, then by age.

        Raises:
            DatabaseError: no run has a name of the filter.
            ArgumentError: the filter has an error.
        """
        now = clock()
        found = sorted(self.look(where), key=lambda record: record.opened)[-MAX_SHOWN:]
        return sorted(found, key=lambda record: (not record.is_live(now), -record.opened, record.index))

    def metrics(self, records: Sequence[Record]) -> list[str]:
        """Numeric columns of the runs, in the order of the first run's file."""
        return list(dict.fromkeys(name for record in records for name in numeric(record.metrics)))

    def curve(self, run: RunName, metric: str) -> Points:
        """Points of one metric of a run; empty without values or with a damaged table."""
        path = self._path(run, PROGRESS_FILE)
        of_role = Path(table_of(str(path), split_role(metric)[1]))
        path = of_role if of_role.exists() else path

        def read() -> Points:
            points, _ = chart_points(self.data_root, *run, [metric])
            return points.get(metric, [])

        return self._read((*run, metric), path, read, [])

    def system(self, run: RunName) -> dict[str, Points]:
        """The columns `SYSTEM` of a run's system.csv, over minutes since its opening."""
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

        return self._read((*run, SYSTEM_FILE), path, read, {})

    def log(self, run: RunName) -> str:
        """The end of a run's log, without control characters."""
        path = self._path(run, LOG_FILE)

        def read() -> str:
            lines, _ = last_lines(path, LOG_LINES, LOG_BYTES)
            return "\n".join(lines_text(line.decode("utf-8", "replace").rstrip("\r")) for line in lines)

        return self._read((*run, LOG_FILE), path, read, "")

    def fleet(self) -> list[dict[str, Any]]:
        """Machines that replicate into this data root, the last heard first; empty if there are none."""
        return sorted(fleet_files(self.data_root), key=lambda machine: machine["age_s"])

    def _path(self, run: RunName, name: str) -> Path:
        return Path(self.data_root, LOG, *run, name)

    def _read(self, key: tuple[str, ...], path: Path, read: Callable[[], _Read], nothing: _Read) -> _Read:
        """The result of `read`, cached while the file is unchanged; `nothing` if it cannot be read."""
        try:
            found = os.stat(path)
            stat = (found.st_ino, found.st_size, found.st_mtime_ns)
            if key not in self._known or self._known[key][0] != stat:
                if len(self._known) > MAX_SHOWN:
                    self._known.clear()
                self._known[key] = (stat, read())
        except (OSError, DatabaseError):
            return nothing
        kept: _Read = self._known[key][1]
        return kept
