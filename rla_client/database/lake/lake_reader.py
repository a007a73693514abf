"""Reader of the lake by signature.

The lake stores each run with its signature from the catalogue. A reader compares signatures first and
reads a run with another signature from its files. Appended rows, tags, notes, resumed and removed runs
therefore take effect at once; changes without a new signature (a file rewritten in place) are found by
`verify`. Without pyarrow, without a lake, or for a part that cannot be read, the reader gives nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.errors import BrokenFileError
from rla_client.database.catalogue import COLUMNS
from rla_client.database.change_signatures import Signatures
from rla_client.database.lake.manifest import LAKE, MANIFEST, MAX_RUNS, LakePart, read_parts, warn
from rla_client.database.lake.part_files import parquet, read_table, schemas

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray


RunName = tuple[str, str]  # (table, index)
SPARSE = 40  # if fewer than one in SPARSE of a part's runs is wanted, reading their files is faster


def available(data_root: Path) -> bool:
    """Whether there is a lake, and pyarrow to read it."""
    return (data_root / LAKE / MANIFEST).exists() and find_spec("pyarrow") is not None


@dataclass(frozen=True)
class PartRuns:
    """Runs of a part, by place: its columns `idx`, `signature` and `samples`."""

    part: LakePart
    columns: pa.Table

    @cached_property
    def indexes(self) -> list[str]:
        """Index of each run."""
        return self.columns["idx"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def signatures(self) -> list[str]:
        """Signature of each run when it was read."""
        return self.columns["signature"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def samples_signatures(self) -> list[str]:
        """Signature of each run's samples when they were read; empty if none are kept."""
        return self.columns["samples"].to_pylist()  # type: ignore[no-any-return]


def part_runs(data_root: Path, part: LakePart) -> PartRuns:
    """Runs of a part.

    Raises:
        BrokenFileError, OSError: the part cannot be read.
    """
    found = read_table(data_root, part, "runs", ["place", "idx", "signature", "samples"])
    if found["place"].to_pylist() != list(range(found.num_rows)) or part.runs > MAX_RUNS:
        raise BrokenFileError(part.name, "its runs are not numbered")
    return PartRuns(part, found)


class Lake:
    """The readable parts of a lake and their runs, as of now."""

    def __init__(self, data_root: Path) -> None:
        self._root = data_root
        self._parts = read_parts(data_root)
        self._opened: dict[str, PartRuns] = {}
        self.broken: list[tuple[LakePart, str]] = []

    @property
    def parts(self) -> list[PartRuns]:
        """The readable parts."""
        return self._open(self._parts)

    def _open(self, parts: Sequence[LakePart]) -> list[PartRuns]:
        for part in list(parts):
            if part.name not in self._opened:
                try:
                    self._opened[part.name] = part_runs(self._root, part)
                except (BrokenFileError, OSError) as error:
                    self.leave_out(part, error)
        return [self._opened[part.name] for part in parts if part.name in self._opened]

    def leave_out(self, part: LakePart, error: Exception) -> None:
        """Ignore a part from now on, with a warning; its runs are read from their files."""
        warn(f"a part of the lake cannot be read ({error}); the files of its runs are read instead")
        self.broken.append((part, str(error)))
        self._opened.pop(part.name, None)
        self._parts = [one for one in self._parts if one != part]

    def signatures(self) -> dict[RunName, str]:
        """Run → its signature when it was read, for all runs of the lake."""
        return {
            (one.part.table, index): signature
            for one in self.parts
            for index, signature in zip(one.indexes, one.signatures, strict=True)
        }

    def all_signatures(self) -> dict[RunName, tuple[str, str]]:
        """Run → signatures of its log and of its samples, for all runs of the lake."""
        return {
            (one.part.table, index): (signature, samples)
            for one in self.parts
            for index, signature, samples in zip(
                one.indexes, one.signatures, one.samples_signatures, strict=True
            )
        }

    def rows(self, wanted: Sequence[tuple[str, str, str]]) -> dict[RunName, tuple[object, ...]]:
        """Rows of the catalogue for those (table, index, signature) that are in the lake."""
        asked = {(table, index): signature for table, index, signature in wanted if signature}
        found: dict[RunName, tuple[object, ...]] = {}
        for one in list(self.parts):
            runs = zip(one.indexes, one.signatures, strict=True)
            places = [
                place
                for place, (index, signature) in enumerate(runs)
                if asked.get((one.part.table, index)) == signature
            ]
            if not places:
                continue
            try:
                table = read_table(self._root, one.part, "runs", COLUMNS)
            except (BrokenFileError, OSError) as error:
                self.leave_out(one.part, error)
                continue
            columns = [column.to_pylist() for column in table.columns]
            every = list(zip(*columns, strict=True))
            found |= {
                (one.part.table, one.indexes[place]): every[place]
                for place in places
                if every[place][:2] == (one.part.table, one.indexes[place])
            }
        return found

    def columns(
        self, pairs: Sequence[RunName], names: Sequence[str], now_ns: int
    ) -> dict[RunName, dict[str, NDArray[np.float64]]]:
        """Columns of progress.csv, as `read_columns` gives them, of the runs that are unchanged in the lake.

        Args:
            pairs: (table, index) of runs.
            names: names of columns.
            now_ns: Unix nanoseconds.
        """
        found: dict[RunName, dict[str, NDArray[np.float64]]] = {}
        wanted = set(pairs)
        for one in self._open(self._worth(pairs)):
            places = self._current(one, wanted, now_ns)
            if len(places) * SPARSE < len(one.indexes):
                continue
            try:
                columns = self._part_columns(one.part, set(places), names)
            except (BrokenFileError, OSError) as error:
                self.leave_out(one.part, error)
                continue
            found |= {(one.part.table, one.indexes[place]): columns.get(place, {}) for place in places}
        return found

    def _worth(self, pairs: Sequence[RunName]) -> list[LakePart]:
        """The parts that may hold enough of these runs to be worth opening."""
        tables: dict[str, list[str]] = {}
        for table, index in pairs:
            tables.setdefault(table, []).append(index)
        for indexes in tables.values():
            indexes.sort()

        def most(part: LakePart) -> int:
            indexes = tables.get(part.table, [])
            return bisect_right(indexes, part.last) - bisect_left(indexes, part.first)

        return [part for part in self._parts if (most(part) or -1) * SPARSE >= part.runs]

    def _current(self, one: PartRuns, wanted: AbstractSet[RunName], now_ns: int) -> list[int]:
        """Places of a part's runs that are wanted and unchanged."""
        table = one.part.table
        with Signatures(self._root, now_ns) as signatures:
            return [
                place
                for place, (index, signature) in enumerate(zip(one.indexes, one.signatures, strict=True))
                if (table, index) in wanted and signatures.of(table, index, signature) == signature
            ]

    def _part_columns(
        self, part: LakePart, places: set[int], names: Sequence[str]
    ) -> dict[int, dict[str, NDArray[np.float64]]]:
        """Place → name → column."""
        found: dict[int, dict[str, NDArray[np.float64]]] = {}
        with parquet(self._root, part, "rows") as file:
            groups = _groups(file, places, names)
        for table in groups:
            _take_columns(table, places, set(names), found)
        return found


def _groups(file: pq.ParquetFile, places: set[int], names: Sequence[str]) -> list[pa.Table]:
    """Places, metrics and values of the row groups that may hold these metrics of these runs."""
    schema = schemas()["rows"]
    metric, place = schema.get_field_index("metric"), schema.get_field_index("place")
    ordered = sorted(places)

    def may_hold(group: pq.RowGroupMetaData) -> bool:
        known, spans = group.column(metric).statistics, group.column(place).statistics
        if known is None or spans is None or not (known.has_min_max and spans.has_min_max):
            return True
        next_place = bisect_left(ordered, spans.min)
        inside = next_place < len(ordered) and ordered[next_place] <= spans.max
        return inside and any(known.min <= name <= known.max for name in names)

    wanted = [group for group in range(file.num_row_groups) if may_hold(file.metadata.row_group(group))]
    return [file.read_row_group(group, columns=["place", "metric", "value"]) for group in wanted]


def _take_columns(
    table: pa.Table, places: set[int], names: set[str], found: dict[int, dict[str, NDArray[np.float64]]]
) -> None:
    for batch in table.to_batches():
        lists = batch.column("value")
        flat = lists.values.to_numpy(zero_copy_only=False)
        ends = lists.offsets.to_pylist()
        keys = zip(batch.column("place").to_pylist(), batch.column("metric").to_pylist(), strict=True)
        for row, (place, metric) in enumerate(keys):
            if metric in names and place in places:
                found.setdefault(place, {})[metric] = flat[ends[row] : ends[row + 1]]
