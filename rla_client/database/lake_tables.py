"""The lake's tables: made of runs, as the files of a part hold them, and queried as DuckDB's views of SQL.

Memory: a part is made from at most `MAX_RUNS` runs with `MAX_CSV_BYTES` of progress.csv; a run with a larger
one stays out of the lake.

`database.sql` shows the tables as the views `runs`, `params`, `last`, `rows`, `system` and `files`. What the
lake holds as it is now comes from its Parquet files, everything else (live runs, those that changed since the
last build, chains) is read from its files first, within `MAX_FRESH_RUNS` and `MAX_FRESH_BYTES`. Only views
that the query names are filled. A chain (see `tree`) is one run, as everywhere.

One SELECT is taken and nothing else, in a process of its own (`sql_process`). DuckDB may open the lake's
files alone, no other file, no network, no extension and no Python variable, and the settings are locked; so a
query that somebody else wrote may be run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError
from rla_client.contract.layout import LOG, TIME_STEP, TIMESTAMP
from rla_client.contract.run_file import LIVE_STATES
from rla_client.database.catalogue import COLUMNS, Catalogue, Signed
from rla_client.database.csv_table import PROGRESS_FILE, chain_names, read_all, read_chain, recorded_nan
from rla_client.database.lake import Lake, RunName, available, check_file, plain_path, schemas
from rla_client.database.records import LIVE_S, to_float, with_live_states
from rla_client.database.sql_process import VIEWS
from rla_client.database.sql_query import Clock, Query
from rla_client.database.tree import chain_of, files_below, run_items
from rla_client.run.parameters.hyper_params import HyperParams

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Content = tuple[dict[str, NDArray[np.float64]], dict[str, list[str | None]]]  # as `read_all` gives it

SYSTEM_FILE = "system.csv"
MAX_CSV_BYTES = 48 << 20  # of a part's runs: about 5 million cells
MAX_SYSTEM_BYTES = 16 << 20  # of one run: two months of samples, one each 30 s
MAX_FILES = 10_000  # of one run
MAX_FRESH_RUNS = 20_000  # that are in no lake, for `runs`, `params` and `last`; about 1 kB each
MAX_FRESH_BYTES = 256 << 20  # of their progress.csv, for `rows`


@dataclass(slots=True)
class RunData:
    """What the lake keeps of one run.

    Attributes:
        row: of the catalogue, in the order of its `COLUMNS`.
        signature: of the files that this was read from.
        rows: progress.csv, as `read_all` gives it; None where there is none.
        system: system.csv likewise.
        files: (kind, path in the item, bytes, mtime).
    """

    row: tuple[Any, ...]
    signature: str
    rows: Content | None = None
    system: Content | None = None
    files: list[tuple[str, str, int, float]] = field(default_factory=list)

    @property
    def index(self) -> str:
        """`YYYY/MM/DD/<name>`."""
        return str(self.row[1])

    @property
    def run(self) -> str:
        """`<table>/<index>`."""
        return f"{self.row[0]}/{self.row[1]}"


def read_rows(data_root: Path, table: str, index: str) -> Content | None:
    """All of a run's progress.csv; None without one.

    Raises:
        BrokenFileError, OSError: it cannot be read.
    """
    try:
        return read_all(f"{data_root}/{LOG}/{table}/{index}/{PROGRESS_FILE}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_system(data_root: Path, table: str, index: str) -> Content | None:
    """All of a run's system.csv; None where there is none that can be read."""
    path = f"{data_root}/{LOG}/{table}/{index}/{SYSTEM_FILE}"
    try:
        return None if os.stat(path).st_size > MAX_SYSTEM_BYTES else read_all(path)
    except (OSError, BrokenFileError):
        return None


def read_files(data_root: Path, table: str, index: str) -> list[tuple[str, str, int, float]]:
    """The files of a run, `MAX_FILES` at most."""
    found: list[tuple[str, str, int, float]] = []
    for item in run_items(data_root, table, index):
        for start in item.paths:
            for path in files_below(start) if os.path.isdir(start) else [start]:
                if len(found) == MAX_FILES:
                    return found
                try:
                    stat = os.lstat(path)
                except OSError:
                    continue
                name = os.path.relpath(path, start) if path != start else os.path.basename(path)
                found.append((item.kind, name, stat.st_size, stat.st_mtime))
    return found


def make_tables(runs: Sequence[RunData], names: Iterable[str]) -> dict[str, pa.Table]:
    """Tables of some runs by the names of files; see `schemas`."""
    return {name: _table(name, runs) if name in _ROWS else _curves_table(name, runs) for name in names}


def _table(name: str, runs: Sequence[RunData]) -> pa.Table:
    import pyarrow as pa

    rows = [(place, one.run, *row) for place, one in enumerate(runs) for row in _ROWS[name](one)]
    schema = schemas()[name]
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else ([] for _ in schema)
    make = {pa.string(): _safe, pa.float64(): _float}
    arrays = [
        pa.array(map(make[field.type], column) if field.type in make else column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, schema=schema)


def _params(one: RunData) -> Iterator[tuple[Any, ...]]:
    hyper = json.loads(one.row[COLUMNS.index("hyper")] or "{}", object_hook=HyperParams)
    for name, value in hyper.flat().items():
        yield name, _spelled(value), _float(value)


def _last(one: RunData) -> Iterator[tuple[Any, ...]]:
    for name, value in json.loads(one.row[COLUMNS.index("metrics")] or "{}").items():
        yield name, _float(value), value if isinstance(value, str) else None


_ROWS: dict[str, Callable[[RunData], Iterable[tuple[Any, ...]]]] = {  # behind place and run
    "runs": lambda one: [(one.signature, *one.row)],
    "params": _params,
    "last": _last,
    "files": lambda one: one.files,
}


def _curves_table(name: str, runs: Sequence[RunData]) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    clock = TIME_STEP if name == "rows" else TIMESTAMP
    keys: list[tuple[int, str, str]] = []
    steps: list[Any] = []
    values: list[Any] = []
    texts: list[list[str | None] | None] = []
    for place, one in enumerate(runs):
        columns, held = (one.rows if name == "rows" else one.system) or ({}, {})
        for metric, column in columns.items():
            keys.append((place, one.run, metric))
            values.append(column)
            steps.append(None if metric == clock else columns.get(clock))
            texts.append(held.get(metric))
    empty = [np.empty(0)]
    places, names, metrics = zip(*keys, strict=True) if keys else ((), (), ())
    schema = schemas()[name]
    return pa.table(
        [
            pa.array(places, pa.int32()),
            pa.array(map(_safe, names), pa.string()),
            pa.array(map(_safe, metrics), pa.string()),
            _lists(steps, empty),
            _lists(values, empty),
            pa.array(
                [None if one is None else [_safe(text) for text in one] for one in texts],
                schema.field("text").type,
            ),
        ],
        schema=schema,
    )


def _lists(columns: Sequence[Any], empty: list[Any]) -> pa.Array:
    """A list of numbers for each column, null where that is None; numbers that were not recorded are null."""
    import numpy as np
    import pyarrow as pa

    lengths = [0 if column is None else len(column) for column in columns]
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    flat = np.concatenate([column for column in columns if column is not None] or empty)
    absent = np.isnan(flat) & ~recorded_nan(flat)
    numbers = pa.array(flat, pa.float64(), mask=absent if absent.any() else None, from_pandas=False)
    missing = np.array([column is None for column in columns], dtype=bool)
    return pa.ListArray.from_arrays(
        pa.array(offsets), numbers, mask=pa.array(missing) if missing.any() else None
    )


def _safe(value: object) -> object:
    """Text as UTF-8 can hold it."""
    return (
        value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value
    )


def _float(value: object) -> float | None:
    return to_float(value) if isinstance(value, int | float) else None


def _spelled(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def compare(
    signed: Sequence[Signed], links: Mapping[RunName, str], held: pa.Array, held_signature: pa.Array
) -> tuple[pa.Array, list[RunName]]:
    """Compare `_held` with what `Catalogue.refresh` and `links` gave, by columns: there are 100,000 runs.

    Returns:
        `<table>/<index>` of what is in the lake, but not as it is now; runs to be read from their files.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table, index, signature, state = (
        pa.array([run[column] for run in signed], pa.string()) for column in range(4)
    )
    run = pc.binary_join_element_wise(table, index, "/")
    is_same = pc.equal(pc.take(held_signature, pc.index_in(run, value_set=held)), signature)
    continued = pc.is_in(run, value_set=_runs((table, parent) for (table, _), parent in links.items()))
    unfit = pc.is_in(state, value_set=pa.array(sorted(LIVE_STATES)))
    for other in (pc.is_in(run, value_set=_runs(links)), continued):
        unfit = pc.or_(unfit, other)
    good = pc.and_not(pc.fill_null(is_same, fill_value=False), unfit)
    fresh = pc.invert(pc.or_(good, continued))
    columns = (column.filter(fresh).to_pylist() for column in (table, index))
    stale = held.filter(pc.invert(pc.is_in(held, value_set=run.filter(good))))
    return stale, list(zip(*columns, strict=True))


def _held(lake: Lake | None) -> tuple[pa.Array, pa.Array]:
    """`<table>/<index>` and signature of all runs of the lake."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = lake.parts if lake is not None else []
    runs = [pc.binary_join_element_wise(one.part.table, one.columns["idx"], "/") for one in parts]
    signatures = [one.columns["signature"] for one in parts]
    whole = (
        pa.chunked_array([part for one in every for part in one.chunks], pa.string())
        for every in (runs, signatures)
    )
    run, signature = (one.combine_chunks() for one in whole)
    return run, signature


def _runs(names: Iterable[RunName]) -> pa.Array:
    import pyarrow as pa

    return pa.array([f"{table}/{index}" for table, index in names], pa.string())


def check_query(query: str) -> None:
    """Be sure that a query is one SELECT.

    Raises:
        ArgumentError: it is not.
    """
    duckdb = _duckdb()
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise ArgumentError(f"the query is not understood: {error}") from error
    kinds = duckdb.StatementType
    if len(statements) != 1 or statements[0].type not in {kinds.SELECT, kinds.EXPLAIN}:
        message = "only one SELECT can be run; the database is never changed by a query"
        raise ArgumentError(message)


def views_in(query: str) -> list[str]:
    """The views that a query may read."""
    return [name for name in VIEWS if re.search(rf"\b{name}\b", query, re.IGNORECASE)]


def _duckdb() -> ModuleType:
    try:
        import duckdb
        import pyarrow as pa  # noqa: F401 - registers what live runs hold
    except ImportError as error:
        raise DatabaseError("SQL needs DuckDB and pyarrow: pip install 'rla-agent[lake]'") from error
    found: ModuleType = duckdb
    return found


class Session:
    """A query, with the tables that the views it names are made of."""

    def __init__(self, data_root: Path, query: str) -> None:
        """Open the lake, which takes no look at the runs, and begin the query's process; `fill` follows.

        Raises:
            ArgumentError: the query is not one SELECT.
            DatabaseError: DuckDB is not installed.
        """
        check_query(query)
        self._root = data_root
        self._query = query
        self._used = views_in(query)
        self._tables: dict[str, pa.Table] = {}
        self._heard = 0.0
        self._process = Query()
        self._lake = Lake(data_root) if available(data_root) else None
        self._sources = self._lake_files(self._lake) if self._lake is not None else {}
        self._held = _held(self._lake)

    def fill(self, catalogue: Catalogue | None, signed: Sequence[Signed], now: float) -> None:
        """Collect what the views show; `signed` is what the catalogue's `refresh` has just given.

        Without a catalogue the views hold those of the `signed` runs that the lake has, and no others.

        Raises:
            DatabaseError: too much is not in the lake yet.
        """
        import pyarrow as pa

        links = catalogue.links() if catalogue is not None else {}
        stale, unread = compare(signed, links, *self._held)
        fresh = self._fresh(catalogue, unread, now) if catalogue is not None else []
        tables = make_tables(fresh, self._used)
        self._tables = {f"fresh_{name}": tables[name] for name in self._used}
        self._tables["lake_stale"] = pa.table({"run": stale})
        self._heard = now - LIVE_S

    def _lake_files(self, lake: Lake) -> dict[str, list[str]]:
        """View → paths of its files; a part of which one cannot be read is left out."""
        for one in list(lake.parts):
            try:
                for name in self._used:
                    check_file(self._root, one.part, name)
            except (BrokenFileError, OSError) as error:
                lake.leave_out(one.part, error)
        return {name: [plain_path(self._root, one.part, name) for one in lake.parts] for name in self._used}

    def _fresh(self, catalogue: Catalogue, wanted: Sequence[RunName], now: float) -> list[RunData]:
        if len(wanted) > MAX_FRESH_RUNS:
            raise _too_much(f"{len(wanted)} runs")
        records = [catalogue.record(*run) for run in wanted]
        states = {
            (one.table, one.index): one.shown_state(now) for one in with_live_states(self._root, records, now)
        }
        place = COLUMNS.index("state")
        found: list[RunData] = []
        total = 0
        for run in wanted:
            row = catalogue.row(*run)
            if row is None:
                continue
            data = RunData((*row[0][:place], states.get(run), *row[0][place + 1 :]), row[1])
            if "rows" in self._used:
                total += _csv_bytes(self._root, run)
                if total > MAX_FRESH_BYTES:
                    raise _too_much(f"{len(wanted)} runs with more than {MAX_FRESH_BYTES >> 20} MB of rows")
                data.rows = self._rows(*run)
            if "system" in self._used:
                data.system = read_system(self._root, *run)
            if "files" in self._used:
                data.files = read_files(self._root, *run)
            found.append(data)
        return found

    def _rows(self, table: str, index: str) -> Content | None:
        """A run's rows, of a chain those of all its items (without texts); None where they are broken."""
        base = f"{self._root}/{LOG}/{table}"
        try:
            chain = chain_of(self._root, table, index)
            if len(chain) == 1:
                return read_rows(self._root, table, index)
            return read_chain(chain, base, chain_names(chain, base)), {}
        except (BrokenFileError, OSError):
            return None

    def execute(self, clock: Clock) -> duckdb.DuckDBPyConnection:
        """Run the query until its first rows are there; errors as of `Query.execute`."""
        return self._process.execute(
            self._query, clock, files=self._sources, tables=self._tables, heard=self._heard
        )


def _too_much(what: str) -> DatabaseError:
    return DatabaseError(f"{what} are not in the lake, too many to read for a query\nhint: rla lake build")


def _csv_bytes(data_root: Path, run: RunName) -> int:
    try:
        return Path(data_root, LOG, *run, PROGRESS_FILE).stat().st_size
    except OSError:
        return 0
