"""The lake: Parquet files of ended runs beside the database, so that a look at many runs parses no text.

The files of the runs stay the truth. The lake lies in `<data root>/.rla/lake/`, which replication, `du`,
`fsck` and everything that walks the tables pass over; it can be deleted at any time and built again:

    lock                                            held (flock) by the one process that builds
    manifest.json                                   which parts count; whatever it does not name is rubbish
    tables/<table>/<YYYY-MM-DD>-<id>/*.parquet      one part: up to `MAX_RUNS` runs of one table

A part begins with the day in its name and holds whole days, or a piece of a day with many runs. It is written
once and never changed: a run that changed has its part written anew under another id. Its files:

    runs      a row a run: the row of the catalogue, its signature, and `place`, its number in this part
    params    run, name, value (text), number (null where it is none)
    last      run, metric, value, text: the last value of each column of progress.csv
    rows      a row for each run and column of progress.csv: lists `step`, `value`, `text`, an entry a row
    system    the same of system.csv; `step` is the time
    files     run, kind, path, bytes, changed: every file of the run when the part was written

`value` is null where a cell was empty or text, NaN where NaN was recorded; `run` is `<table>/<index>`.
`rows` is ordered by metric and run, in row groups of some 100 runs, so that one metric is read alone.

A run is in the lake under the signature that the catalogue gives it (see `catalogue`): mtime of the log
folder, inode, size, mtime and ctime of progress.csv. Whoever reads a run from the lake compares that first;
a run with another signature is read from its files. So a row that was appended, a tag, a note, a resumed or
removed run is seen at once; what no signature shows is found by `verify`: a file that was rewritten in place.

Everything is written to a temp name, synced and renamed, the manifest last. A manifest or part that cannot
be read is warned about and left out: its runs are read from their files, and the next build replaces it.

This is the one module that knows of a file system; the others give names such as
`tables/a/2026-01-01-0a1b/runs`. What is read, rows for the catalogue and columns for curves, is read by
signature. Without pyarrow, without a lake, or where a part cannot be read, nothing is found here and the
files are read.
"""

from __future__ import annotations

import json
import os
import secrets
import warnings
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rla_client.contract.errors import BrokenFileError, DatabaseError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, atomic_file, write_atomic
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.filesystem.safe_paths import discard, held_folder
from rla_client.contract.process.locks import try_lock
from rla_client.contract.safe_names import check_relative
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.catalogue import COLUMNS, VERSION, Signatures

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

LAKE = ".rla/lake"
TABLES = "tables"
MANIFEST = "manifest.json"
FORMAT = 1
MAX_MANIFEST_BYTES = 16 << 20  # 30,000 parts of 500 bytes
MAX_FILE_BYTES = 1 << 30  # of a part's file, packed or not; ours have a tenth of it
FOOTER_END = 8  # bytes: the footer's length, "PAR1"
MAX_FOOTER_BYTES = 64 << 20
NAMES = ("runs", "params", "last", "rows", "system", "files")  # of a part's files
MAX_RUNS = 2048  # of a part
_NUMBERS = frozenset({"opened", "updated", "time_step", "duration_s"})
RunName = tuple[str, str]  # (table, index)
SPARSE = 40  # a part of which fewer than one run in so many is asked for is slower than the files of these


@dataclass(frozen=True, slots=True)
class Part:
    """Some runs of one table, in files of their own.

    Attributes:
        name: its folder below the lake.
        table: task table name.
        first: the least index of its runs.
        last: the greatest.
        runs: how many.
        csv_bytes: of their progress.csv.
        sizes: file name without ending → its bytes.
        footers: file name without ending → checksum of its footer, which Parquet itself does not protect.
        written: Unix seconds.
    """

    name: str
    table: str
    first: str
    last: str
    runs: int
    csv_bytes: int
    sizes: dict[str, int] = field(hash=False)
    footers: dict[str, int] = field(hash=False)
    written: float


def read_parts(data_root: Path) -> list[Part]:
    """The parts that count; none without a lake, or, with a warning, when its manifest is broken."""
    try:
        with held_folder(data_root, LAKE) as folder:
            found = parse_json(read_small(folder / MANIFEST, MAX_MANIFEST_BYTES), MAX_MANIFEST_BYTES)
        return _parts(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError, DatabaseError) as error:
        warn(f"the lake's manifest cannot be read ({error}); the files are read instead")
        return []


def _parts(found: Any) -> list[Part]:  # noqa: ANN401
    if found["format"] != FORMAT or found["catalogue"] != VERSION:
        return []  # of another version: the next build replaces it
    parts = []
    for one in found["parts"]:
        part = Part(
            str(one["name"]),
            str(one["table"]),
            str(one["first"]),
            str(one["last"]),
            int(one["runs"]),
            int(one["csv_bytes"]),
            {str(name): int(size) for name, size in one["sizes"].items()},
            {str(name): int(check) for name, check in one["footers"].items()},
            float(one["written"]),
        )
        if check_relative(part.name)[0] != TABLES or {*part.sizes} != {*NAMES} or {*part.footers} != {*NAMES}:
            raise ValueError(f"{part.name!r} is not a part")
        parts.append(part)
    return parts


def warn(message: str) -> None:
    """Tell of a fault of the lake, once a place; nothing but time is lost by it."""
    warnings.warn(f"{message}\nhint: rla lake build", stacklevel=3)


@contextmanager
def open_file(data_root: Path, part: Part, name: str) -> Iterator[BinaryIO]:
    """One file of a part.

    Raises:
        BrokenFileError: it is not as it was written. OSError: it cannot be opened.
    """
    with (
        held_folder(data_root, f"{LAKE}/{part.name}") as folder,
        open_plain(folder / f"{name}.parquet") as file,
    ):
        size = os.fstat(file.fileno()).st_size
        if size != part.sizes[name] or size > MAX_FILE_BYTES:
            raise BrokenFileError(
                f"{LAKE}/{part.name}/{name}.parquet", "it has another size than was written"
            )
        if _footer_check(file, size) != part.footers[name]:
            raise BrokenFileError(f"{LAKE}/{part.name}/{name}.parquet", "its footer is damaged")
        yield file


def _footer_check(file: BinaryIO, size: int) -> int:
    """Checksum of a Parquet file's footer, whose length stands before the last four bytes."""
    file.seek(max(size - FOOTER_END, 0))
    length = int.from_bytes(file.read(FOOTER_END)[:4], "little") + FOOTER_END
    file.seek(max(size - min(length, MAX_FOOTER_BYTES), 0))
    check = zlib.crc32(file.read(min(length, MAX_FOOTER_BYTES)))
    file.seek(0)
    return check


def plain_path(data_root: Path, part: Part, name: str) -> str:
    """Path of a part's file, for programs that open files themselves; checked as `open_file` does.

    Raises:
        BrokenFileError, OSError: as `open_file`.
    """
    with open_file(data_root, part, name):
        return f"{data_root}/{LAKE}/{part.name}/{name}.parquet"


def available(data_root: Path) -> bool:
    """Whether there is a lake, and the library to read it."""
    return (data_root / LAKE / MANIFEST).exists() and find_spec("pyarrow") is not None


@dataclass(frozen=True)
class PartRuns:
    """Which runs a part holds, by place: its columns `idx` and `signature`."""

    part: Part
    columns: pa.Table

    @cached_property
    def indexes(self) -> list[str]:
        """Index of each run."""
        return self.columns["idx"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def signatures(self) -> list[str]:
        """Signature that each run had when it was read."""
        return self.columns["signature"].to_pylist()  # type: ignore[no-any-return]


@contextmanager
def _parquet(data_root: Path, part: Part, name: str) -> Iterator[pq.ParquetFile]:
    """A part's file, whose columns and sizes are as we write them; what cannot be read of it is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = f"{part.name}/{name}.parquet"
    with open_file(data_root, part, name) as file:
        try:
            found = pq.ParquetFile(file, page_checksum_verification=True)
            if not found.schema_arrow.equals(schemas()[name]):
                raise BrokenFileError(where, "it has other columns than the lake's")
            groups = range(found.num_row_groups)
            whole = sum(found.metadata.row_group(group).total_byte_size for group in groups)
            if whole > MAX_FILE_BYTES or (name == "runs" and found.metadata.num_rows != part.runs):
                raise BrokenFileError(where, "it holds more than was written")
            yield found
        except (pa.ArrowException, OSError, ValueError) as error:  # a damaged page is an OSError to pyarrow
            raise BrokenFileError(where, f"no valid Parquet ({error})") from error


def read_table(data_root: Path, part: Part, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A part's file, or some columns of it.

    Raises:
        BrokenFileError: it is not what was written. OSError: it cannot be read.
    """
    with _parquet(data_root, part, name) as file:
        return file.read(columns=columns)


def check_file(data_root: Path, part: Part, name: str) -> None:
    """Be sure that a part's file can be opened and has the columns that it should.

    Raises:
        BrokenFileError, OSError: it cannot, or has others.
    """
    with _parquet(data_root, part, name):
        pass


def part_runs(data_root: Path, part: Part) -> PartRuns:
    """Which runs a part holds.

    Raises:
        BrokenFileError, OSError: it cannot be read.
    """
    found = read_table(data_root, part, "runs", ["place", "idx", "signature"])
    if found["place"].to_pylist() != list(range(found.num_rows)) or part.runs > MAX_RUNS:
        raise BrokenFileError(part.name, "its runs are not numbered")
    return PartRuns(part, found)


class Lake:
    """The parts that can be read, and the runs in them, as of now."""

    def __init__(self, data_root: Path) -> None:
        self._root = data_root
        self._parts = read_parts(data_root)
        self._opened: dict[str, PartRuns] = {}
        self.broken: list[tuple[Part, str]] = []

    @property
    def parts(self) -> list[PartRuns]:
        """Those that can be read."""
        return self._open(self._parts)

    def _open(self, parts: Sequence[Part]) -> list[PartRuns]:
        for part in list(parts):
            if part.name not in self._opened:
                try:
                    self._opened[part.name] = part_runs(self._root, part)
                except (BrokenFileError, OSError) as error:
                    self.leave_out(part, error)
        return [self._opened[part.name] for part in parts if part.name in self._opened]

    def leave_out(self, part: Part, error: Exception) -> None:
        """Read the files of a part's runs from now on, and say why."""
        warn(f"a part of the lake cannot be read ({error}); the files of its runs are read instead")
        self.broken.append((part, str(error)))
        self._opened.pop(part.name, None)
        self._parts = [one for one in self._parts if one != part]

    def signatures(self) -> dict[RunName, str]:
        """All runs of the lake with the signatures that they had when they were read."""
        return {
            (one.part.table, index): signature
            for one in self.parts
            for index, signature in zip(one.indexes, one.signatures, strict=True)
        }

    def rows(self, wanted: Sequence[tuple[str, str, str]]) -> dict[RunName, tuple[object, ...]]:
        """The catalogue's rows of those (table, index, signature) that are in the lake."""
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
        """Columns of progress.csv, as `read_columns` gives them, of those runs that the lake has as they are.

        Args:
            pairs: (table, index) of runs.
            names: of columns.
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

    def _worth(self, pairs: Sequence[RunName]) -> list[Part]:
        """The parts that may hold enough of these runs to be opened."""
        tables: dict[str, list[str]] = {}
        for table, index in pairs:
            tables.setdefault(table, []).append(index)
        for indexes in tables.values():
            indexes.sort()

        def most(part: Part) -> int:
            indexes = tables.get(part.table, [])
            return bisect_right(indexes, part.last) - bisect_left(indexes, part.first)

        return [part for part in self._parts if (most(part) or -1) * SPARSE >= part.runs]

    def _current(self, one: PartRuns, wanted: AbstractSet[RunName], now_ns: int) -> list[int]:
        """Places of a part's runs that are wanted and as they were."""
        table = one.part.table
        with Signatures(self._root, now_ns) as signatures:
            return [
                place
                for place, (index, signature) in enumerate(zip(one.indexes, one.signatures, strict=True))
                if (table, index) in wanted and signatures.of(table, index) == signature
            ]

    def _part_columns(
        self, part: Part, places: set[int], names: Sequence[str]
    ) -> dict[int, dict[str, NDArray[np.float64]]]:
        """Place → name → column."""
        found: dict[int, dict[str, NDArray[np.float64]]] = {}
        with _parquet(self._root, part, "rows") as file:
            groups = _groups(file, places, names)
        for table in groups:
            _take_columns(table, places, set(names), found)
        return found


def _groups(file: pq.ParquetFile, places: set[int], names: Sequence[str]) -> list[pa.Table]:
    """Places, metrics and values of the row groups that may hold some metrics of some runs."""
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


class Builder:
    """The right to change a lake; see `building`."""

    def __init__(self, data_root: Path) -> None:
        self._root = data_root
        self.parts = read_parts(data_root)
        self._before = {part.name for part in self.parts}

    def new_name(self, table: str, day: str) -> str:
        """A name for a part that nobody has."""
        return f"{TABLES}/{table}/{day.replace('/', '-')}-{secrets.token_hex(6)}"

    def write(self, part: str, name: str, write: Callable[[BinaryIO], None]) -> tuple[int, int]:
        """Write a file of a new part durably; its size, and the checksum of its footer.

        Raises:
            OSError: it could not be written; nothing of it stays.
        """
        with held_folder(self._root, f"{LAKE}/{part}", create=True) as folder:
            path = folder / f"{name}.parquet"
            with atomic_file(path) as file:
                write(file)
            with open_plain(path) as written:
                size = os.fstat(written.fileno()).st_size
                return size, _footer_check(written, size)

    def fetch(self, part: Part, name: str) -> None:
        """Have a file of a part here, where `open_file` finds it; a lake on this disk always has."""

    def publish(self, parts: list[Part]) -> None:
        """From now on these parts count."""
        content = {"format": FORMAT, "catalogue": VERSION, "parts": [asdict(part) for part in parts]}
        self.put_manifest(json.dumps(content, separators=(",", ":")).encode())
        self.parts = parts

    def put_manifest(self, data: bytes) -> None:
        """Replace the manifest."""
        with held_folder(self._root, LAKE, create=True) as folder:
            write_atomic(folder / MANIFEST, data)

    def sweep(self) -> None:
        """Delete parts that neither count nor counted when this build began: those may still be read."""
        with held_folder(self._root, LAKE) as top:
            for name in os.listdir(top):
                if name.startswith(TEMP_PREFIX):
                    os.unlink(top / name)
        keep = self._before | {part.name for part in self.parts}
        base = Path(self._root, LAKE)
        for folder, folders, names in os.walk(base / TABLES):
            here = os.path.relpath(folder, base)
            if here in keep:
                folders.clear()
            elif any(name.endswith(".parquet") or name.startswith(TEMP_PREFIX) for name in names) or (
                not folders and here != TABLES
            ):
                folders.clear()
                discard(self._root, f"{LAKE}/{os.path.dirname(here)}", os.path.basename(here))

    def drop(self) -> None:
        """Delete the lake, the manifest first."""
        with held_folder(self._root, LAKE) as folder, suppress(FileNotFoundError):
            os.unlink(folder / MANIFEST)
        discard(self._root, LAKE, TABLES)
        self.parts = []


@contextmanager
def building(data_root: Path) -> Iterator[Builder | None]:
    """Hold the lake for a change; None where another process does.

    Raises:
        DatabaseError: it cannot be written here.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with held_folder(data_root, LAKE, create=True) as folder:
            descriptor = os.open(folder / "lock", flags, 0o666)
    except (OSError, UnsafeNameError) as error:
        raise DatabaseError(f"{data_root}/{LAKE} cannot be written: {error}") from error
    try:
        yield Builder(data_root) if try_lock(descriptor) else None
    finally:
        os.close(descriptor)


def schemas() -> dict[str, pa.Schema]:
    """File name → what it holds."""
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    curves = [
        ("metric", text),
        ("step", pa.list_(number)),
        ("value", pa.list_(number)),
        ("text", pa.list_(text)),
    ]
    fields = {
        "runs": [("signature", text), *((name, number if name in _NUMBERS else text) for name in COLUMNS)],
        "params": [("name", text), ("value", text), ("number", number)],
        "last": [("metric", text), ("value", number), ("text", text)],
        "rows": curves,
        "system": curves,
        "files": [("kind", text), ("path", text), ("bytes", pa.int64()), ("changed", number)],
    }
    return {name: pa.schema([("place", pa.int32()), ("run", text), *found]) for name, found in fields.items()}
