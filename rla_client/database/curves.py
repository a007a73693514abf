"""Curves of many runs in one long DataFrame.

Columns of progress.csv as raw float64 files, so that a second look parses no text.

One file per run and column in the state folder: `<magic 8 bytes><signature 56 bytes, padded>`
and then little-endian float64. It is used only while its signature (inode, size, mtime, ctime
of the CSV) is that of the CSV; a CSV that changed within the last two seconds is never stored.
The folder is kept under `MAX_CACHE_BYTES` by dropping what was used longest ago.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rla_client.contract.errors import DatabaseError, extra
from rla_client.contract.files import write_atomic
from rla_client.contract.layout import LOG, TIME_STEP
from rla_client.contract.user_messages import full_name
from rla_client.database.catalogue import RACY_NS
from rla_client.database.chains import chain_columns, chain_names, chain_of
from rla_client.database.csv_table import read_columns
from rla_client.database.records import PROGRESS_FILE, clock

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from rla_client.database.curve_frame import CurveFrame
    from rla_client.database.lake.reading import Lake

MAGIC = b"RLACOL2\n"
SIGNATURE_BYTES = 56
MAX_CACHE_BYTES = 2 << 30
FULL_NAMES = "full_names"  # of a long frame's attrs: metric or x as asked for -> the column's name
LAKE_FROM = 64  # runs: fewer are read from files sooner than pyarrow is imported
READERS = 2  # threads; parsing a CSV lets go of the interpreter lock, more wait for the disk


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


def long_frame(
    reader: Reader,
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    x: str,
    bound: float | tuple[float, float] | None,
) -> CurveFrame:
    """See `Database.curves`."""
    with extra("read", "a DataFrame of curves"):
        import numpy as np
        import pandas as pd

    tables, full = _tables(reader, pairs, [x, *metrics])
    pieces = [
        _Piece(run, name, *_finite(table[full[x]], table[full[name]], bound))
        for run, table in zip(pairs, tables, strict=True)
        for name in metrics
        if full[x] in table and full[name] in table
    ]
    lengths = [len(piece.xs) for piece in pieces]

    def codes(places: Sequence[int]) -> NDArray[np.int64]:
        return np.repeat(np.array(places, dtype=np.int64), lengths)

    def category(names: Sequence[str], of_piece: Sequence[str]) -> pd.Categorical:
        known = {name: place for place, name in enumerate(dict.fromkeys(names))}
        return pd.Categorical.from_codes(codes([known[name] for name in of_piece]), pd.Index(list(known)))

    empty = [np.empty(0)]
    from rla_client.database.curve_frame import ROOT, CurveFrame, X

    frame: CurveFrame = CurveFrame(
        {
            "table": category([table for table, _ in pairs], [piece.run[0] for piece in pieces]),
            "index": category([index for _, index in pairs], [piece.run[1] for piece in pieces]),
            "metric": category(metrics, [piece.metric for piece in pieces]),
            "x": np.concatenate([piece.xs for piece in pieces] or empty),
            "value": np.concatenate([piece.ys for piece in pieces] or empty),
        }
    )
    frame.attrs |= {FULL_NAMES: full, ROOT: str(reader.data_root), X: full[x]}
    return frame


class _Piece(NamedTuple):
    """One metric of one run; arrays of shape (points,)."""

    run: tuple[str, str]
    metric: str
    xs: Any
    ys: Any


def _tables(
    reader: Reader, pairs: Sequence[tuple[str, str]], names: Sequence[str]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Columns of each run, and which column each name means.

    Raises:
        UnknownNameError: none of the runs has a column, though they have others.
    """
    names = list(dict.fromkeys(names))
    tables = _warned(read_tables(reader, pairs, names))
    full = {name: name for name in names}
    if all(any(name in table for table in tables) for name in names):
        return tables, full
    known = _known_columns(reader.data_root, pairs)
    if known:
        full = {name: full_name(name, known, f"none of these runs has the metric {name!r}") for name in names}
        tables = _warned(read_tables(reader, pairs, list(dict.fromkeys(full.values()))))
    return tables, full


def _known_columns(data_root: Path, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """All columns of some runs, the newest run's first."""
    known: dict[str, None] = {}
    for table, index in reversed(pairs):
        with suppress(DatabaseError, OSError):
            chain = chain_of(data_root, table, index)
            known |= dict.fromkeys(chain_names(chain, f"{data_root}/{LOG}/{table}"))
    return list(known)


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
            return chain_columns(chain, lambda one, wanted: columns(table, one, wanted), names, TIME_STEP)
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


def _warned(found: Sequence[dict[str, Any] | DatabaseError | OSError]) -> list[dict[str, Any]]:
    """The columns of each run, none where its table is broken, which is told."""
    tables: list[dict[str, Any]] = []
    for table in found:
        if isinstance(table, Exception):
            warn_broken(table)
        tables.append({} if isinstance(table, Exception) else table)
    return tables


def warn_broken(error: Exception) -> None:
    """Say which file could not be read, once per place."""
    warnings.warn(str(error), stacklevel=3)


def _finite(
    xs: NDArray[np.float64], ys: NDArray[np.float64], bound: float | tuple[float, float] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    import numpy as np

    keep = ~(np.isnan(xs) | np.isnan(ys))
    if bound is not None:
        low, high = bound if isinstance(bound, tuple) else (-np.inf, bound)
        keep &= (xs >= low) & (xs <= high)
    return (xs, ys) if keep.all() else (xs[keep], ys[keep])


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
            return {
                name: column for name, column in have.items() if column.size != 1 or not _is_absent(column)
            }
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


_ABSENT = -1.2345678901234567e-301  # stands alone in the file of a column that the table has not


def _is_absent(column: NDArray[np.float64]) -> bool:
    return bool(column[0] == _ABSENT)


def csv_signature(path: str, now_ns: int) -> tuple[bytes, bool]:
    """What tells one content of a file from another, and whether it is old enough to be trusted.

    Raises:
        OSError: there is no such file.
    """
    found = os.stat(path)
    parts = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    digest = hashlib.sha224(repr(parts).encode()).hexdigest().encode()
    return digest, now_ns - max(found.st_mtime_ns, found.st_ctime_ns) > RACY_NS
