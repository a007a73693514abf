"""The curves of runs: columns of progress.csv as arrays, and as points for a chart in a terminal.

Of a chain (see `records`) the rows of all its items that count make one curve. Points are read without
pandas or numpy; of a large table they are a sample, so that a look stays quick, and the rows that count are
told by time-step alone.

Columns are cached as raw float64 files, so that a second look parses no text. One file per run and column
in the state folder: `<magic 8 bytes><signature 56 bytes, padded>` and then little-endian float64. It is used
only while its signature (inode, size, mtime, ctime of the CSV) is that of the CSV; a CSV that changed within
the last two seconds is never stored. The folder is kept under `MAX_CACHE_BYTES` by dropping what was used
longest ago.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import DatabaseError, extra
from rla_client.contract.files import write_atomic
from rla_client.contract.layout import LOG, TIME_STEP
from rla_client.database.catalogue import RACY_NS
from rla_client.database.csv_table import Sample, read_columns, read_tail, sample_rows
from rla_client.database.records import PROGRESS_FILE, Link, chain_of, clock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rla_client.database.lake.store import Lake

    Columns = dict[str, NDArray[np.float64]]

MAGIC = b"RLACOL2\n"
SIGNATURE_BYTES = 56
MAX_CACHE_BYTES = 2 << 30
_ABSENT = -1.2345678901234567e-301  # stands alone in the file of a column that the table has not
FULL_NAMES = "full_names"  # of a long frame's attrs: metric or x as asked for -> the column's name
LAKE_FROM = 64  # runs: fewer are read from files sooner than pyarrow is imported
READERS = 2  # threads; parsing a CSV lets go of the interpreter lock, more wait for the disk
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Reader:
    """Where the curves of a database come from.

    Attributes:
        data_root: of the database.
        cache: of its columns on this machine.
        links: (table, index) of each run that continues another one → that one's index.
        lake: opens the lake (see `lake`), where there is one; asked for many runs alone.
    """

    data_root: Path
    cache: CurveCache
    links: Mapping[tuple[str, str], str]
    lake: Callable[[], Lake | None] | None = None


def read_tables(
    reader: Reader, pairs: Sequence[tuple[str, str]], names: Sequence[str]
) -> list[dict[str, Any] | DatabaseError | OSError]:
    """The columns that each run has of `names`, none without a table; the error where that is broken."""
    from concurrent.futures import ThreadPoolExecutor

    now_ns = int(clock() * 1e9)

    def columns(table: str, index: str, wanted: Sequence[str]) -> dict[str, Any]:
        path = f"{reader.data_root}/{LOG}/{table}/{index}/{PROGRESS_FILE}"
        return reader.cache.columns(path, wanted, now_ns)

    ready = _from_lake(reader, pairs, names, now_ns)

    def read(pair: tuple[str, str]) -> dict[str, Any] | DatabaseError | OSError:
        table, index = pair
        if pair in ready:
            return ready[pair]
        try:
            if pair not in reader.links:
                return columns(table, index, names)
            chain = chain_of(reader.data_root, table, index)
            return chain_columns(chain, lambda one, wanted: columns(table, one, wanted), names)
        except FileNotFoundError:
            return {}
        except (DatabaseError, OSError) as error:
            return error

    if all(pair in ready for pair in pairs):
        return [ready[pair] for pair in pairs]
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(read, pairs))
    reader.cache.trim()
    return found


def _from_lake(
    reader: Reader, pairs: Sequence[tuple[str, str]], names: Sequence[str], now_ns: int
) -> dict[tuple[str, str], dict[str, Any]]:
    """The columns of those runs that the lake has as they are; chains are put together from files."""
    if reader.lake is None or len(pairs) < LAKE_FROM:
        return {}
    lake = reader.lake()
    single = [pair for pair in pairs if pair not in reader.links]
    return {} if lake is None else lake.columns(single, names, now_ns)


def warn_broken(error: Exception) -> None:
    """Say which file could not be read, once per place."""
    warnings.warn(str(error), stacklevel=3)


def chain_columns(
    chain: Sequence[Link], read: Callable[[str, Sequence[str]], Columns], names: Sequence[str]
) -> Columns:
    """Columns of a chain's rows as of one run's.

    Args:
        chain: see `chain_of`.
        read: columns of one item, by index and names; names that it has not are left out.
        names: columns.

    Returns:
        Name → values, shape (rows,), NaN where an item has no such column.

    Raises:
        What `read` raises; items of a chain without a table have no rows.
    """
    with extra("read", "reading a run that continues another"):
        import numpy as np

    parts = []
    for link in chain:
        try:
            part = read(link.index, list(dict.fromkeys([*names, TIME_STEP])))
        except FileNotFoundError:
            if len(chain) == 1:
                raise
            continue
        parts.append(_cut(part, link))
    lengths = [max((len(column) for column in part.values()), default=0) for part in parts]
    found = {}
    for name in names:
        if any(name in part for part in parts):
            columns = [
                part[name] if name in part else np.full(length, np.nan)
                for part, length in zip(parts, lengths, strict=True)
            ]
            found[name] = np.concatenate(columns)
    return found


def _cut(part: Columns, link: Link) -> Columns:
    if link.rows is not None:
        return {name: column[: link.rows] for name, column in part.items()}
    if link.time_step is not None and TIME_STEP in part:
        keep = part[TIME_STEP] <= link.time_step
        return {name: column[keep] for name, column in part.items()}
    return part


def chain_names(chain: Sequence[Link], table_folder: str) -> list[str]:
    """Columns of a chain's tables, those of the last item first.

    Raises:
        BrokenFileError: one is not a table.
        OSError: that of the last item cannot be opened.
    """
    names: list[str] = []
    for link in reversed(chain):
        try:
            names += read_tail(f"{table_folder}/{link.index}/{PROGRESS_FILE}").columns
        except FileNotFoundError:
            if len(chain) == 1:
                raise
    return list(dict.fromkeys(names))


def chart_points(
    data_root: Path, table: str, index: str, choose: Sequence[str]
) -> tuple[dict[str, Points], bool]:
    """Points (x, y) of some columns of a run, from the beginning of its chain; x is the time-step.

    Args:
        data_root: the database.
        table: task table.
        index: the run, or the last item of a chain that is wanted.
        choose: columns.

    Returns:
        Points by column, those that were recorded as NaN or infinite too, without columns that
        there are not; and whether tables were sampled. Without a time-step x is the row.

    Raises:
        BrokenFileError: an item's table is none.
        OSError: it cannot be opened; items of a chain without a table have no points.
    """
    chain = chain_of(data_root, table, index)
    found: dict[str, Points] = {}
    sampled = False
    before = 0
    for link in chain:
        try:
            sample = sample_rows(
                f"{data_root}/{LOG}/{table}/{link.index}/{PROGRESS_FILE}", [TIME_STEP, *choose]
            )
        except FileNotFoundError:
            if len(chain) == 1:
                raise
            continue
        sampled = sampled or not sample.whole
        keep = _counting(sample, link)
        steps = sample.columns.get(TIME_STEP)
        for name in choose:
            cells = sample.columns.get(name)
            if cells is None:
                continue
            points = found.setdefault(name, [])
            for row in keep:
                x, y = steps[row] if steps is not None else float(before + row), cells[row]
                if x is not None and y is not None:
                    points.append((x, y))
        before += len(keep)
    return found, sampled


def chart_names(data_root: Path, table: str, index: str) -> list[str]:
    """Columns of a run's table, of a chain those of all its items."""
    return chain_names(chain_of(data_root, table, index), f"{data_root}/{LOG}/{table}")


def _counting(sample: Sample, link: Link) -> list[int]:
    """The rows of an item that count in its chain."""
    rows = list(range(sample.rows))
    steps = sample.columns.get(TIME_STEP)
    if link.rows is not None and sample.whole:
        return rows[: link.rows]
    if link.time_step is not None and steps is not None:
        return [row for row in rows if (step := steps[row]) is not None and step <= link.time_step]
    return rows


class CurveCache:
    """Reads columns of CSVs, through the cache where that is right."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "columns"
        self._stored = 0

    def columns(self, path: str, names: Sequence[str], now_ns: int) -> dict[str, NDArray[np.float64]]:
        """Columns of one table, shape (rows,) each; names that it has not are left out.

        Raises:
            BrokenFileError: it is not a table.
            OSError: it cannot be opened.
        """
        import numpy as np

        signature, settled = csv_signature(path, now_ns)
        found = {name: self._load(path, name, signature) for name in names} if settled else {}
        have = {name: column for name, column in found.items() if column is not None}
        if settled and len(have) == len(names):
            return {name: column for name, column in have.items() if column.size != 1 or column[0] != _ABSENT}
        fresh = read_columns(path, names)
        if settled and csv_signature(path, now_ns)[0] == signature:
            for name in names:
                self._store(path, name, signature, fresh.get(name, np.array([_ABSENT])))
        return fresh

    def _file(self, path: str, name: str) -> Path:
        digest = hashlib.sha256(f"{path}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()
        return self._folder / digest[:2] / digest[2:34]

    def _load(self, path: str, name: str, signature: bytes) -> NDArray[np.float64] | None:
        import numpy as np

        try:
            with open(self._file(path, name), "rb") as file:
                head = file.read(len(MAGIC) + SIGNATURE_BYTES)
                if head != MAGIC + signature:
                    return None
                return np.frombuffer(file.read(), dtype="<f8")
        except (OSError, ValueError):
            return None

    def _store(self, path: str, name: str, signature: bytes, column: NDArray[np.float64]) -> None:
        target = self._file(path, name)
        with suppress(OSError):  # a cache that cannot be written is no fault
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(target, MAGIC + signature + column.astype("<f8").tobytes(), durable=False)
            self._stored += 1

    def trim(self) -> None:
        """After new files were stored: drop the oldest beyond the limit."""
        if not self._stored:
            return
        self._stored = 0
        files: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with suppress(OSError):
                    found = os.stat(os.path.join(folder, name))
                    files.append((found.st_mtime, found.st_size, os.path.join(folder, name)))
        excess = sum(size for _, size, _ in files) - MAX_CACHE_BYTES
        for _, size, name in sorted(files):
            if excess <= 0:
                return
            with suppress(OSError):
                os.unlink(name)
            excess -= size


def csv_signature(path: str, now_ns: int) -> tuple[bytes, bool]:
    """What tells one content of a file from another, and whether it is old enough to be trusted.

    Raises:
        OSError: there is no such file.
    """
    found = os.stat(path)
    parts = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    digest = hashlib.sha224(repr(parts).encode()).hexdigest().encode()
    return digest, now_ns - max(found.st_mtime_ns, found.st_ctime_ns) > RACY_NS
