"""`database.sql`: the database as DuckDB's views `runs`, `params`, `last`, `rows`, `system`, `files`.

What the lake holds as it is now comes from its Parquet files, everything else (live runs, those that
changed since the last build, chains) is read from its files first, within
`MAX_FRESH_RUNS` and `MAX_FRESH_BYTES`. Only views that the query names are filled. A chain (see
`chains`) is one run, as everywhere.

One SELECT is taken and nothing else. DuckDB may open the lake's files alone, no other file, no network, no
extension and no Python variable, and the settings are locked; so a query that somebody else wrote may be run.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError
from rla_client.contract.layout import LOG
from rla_client.contract.opening import LIVE_STATES
from rla_client.contract.textformat import hint as spelling_hint
from rla_client.database.catalogue import COLUMNS, Catalogue, Signed
from rla_client.database.csv_table import read_columns
from rla_client.database.curves import chain_columns, chain_names
from rla_client.database.lake.store import Lake, RunName, available, check_file, plain_path
from rla_client.database.lake.tables import RunData, make_tables, read_files, read_rows, read_system
from rla_client.database.live import with_live_states
from rla_client.database.records import LIVE_S, PROGRESS_FILE, chain_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from rla_client.database.lake.tables import Content

MAX_FRESH_RUNS = 20_000  # that are in no lake, for `runs`, `params` and `last`; about 1 kB each
MAX_FRESH_BYTES = 256 << 20  # of their progress.csv, for `rows`
MEMORY = "4GB"  # of a query; nothing is written to disk
_VIEWS = {
    "runs": """SELECT run, table_name AS "table", idx AS "index", host,
        CASE WHEN state IN ('running', 'stalled') AND updated < {heard} THEN 'unknown' ELSE state END
            AS state,
        coalesce(try_strptime(left(idx, 26), '%Y/%m/%d/%H-%M-%S-%f'),
            make_timestamp(CAST(opened * 1e6 AS BIGINT)))
            AS opened,
        duration_s AS took, time_step AS step, nullif(likely, '') AS metric,
        try_cast(likely_text AS DOUBLE) AS value, from_json(tags, '["VARCHAR"]') AS tags, note,
        string_split(kinds, ' ') AS kinds, nullif(parent, '') AS parent FROM ({source})""",
    "params": "SELECT run, name, value, number FROM ({source})",
    "last": "SELECT run, metric, value, text FROM ({source})",
    "rows": """SELECT * FROM (SELECT run, unnest(step) AS time_step, metric, unnest(value) AS value,
        unnest(text) AS text FROM ({source}) WHERE metric <> 'time-step')
        WHERE value IS NOT NULL OR text IS NOT NULL""",
    "system": """SELECT * FROM (SELECT run, unnest(step) AS time, metric, unnest(value) AS value
        FROM ({source}) WHERE metric <> 'timestamp') WHERE value IS NOT NULL""",
    "files": """SELECT run, kind, path, bytes, make_timestamp(CAST(changed * 1e6 AS BIGINT)) AS changed
        FROM ({source})""",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """Which runs of the lake count, and which have to be read.

    Attributes:
        stale: `<table>/<index>` of what is in the lake, but not as it is now.
        fresh: to be read from their files.
    """

    stale: pa.Array
    fresh: list[RunName]


def compare(
    signed: Sequence[Signed], links: Mapping[RunName, str], held: pa.Array, held_signature: pa.Array
) -> Standing:
    """Compare `_held` with what `Catalogue.refresh` and `links` gave, by columns: there are 100,000 runs."""
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
    return Standing(stale, list(zip(*columns, strict=True)))


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
    return [name for name in _VIEWS if re.search(rf"\b{name}\b", query, re.IGNORECASE)]


def _duckdb() -> ModuleType:
    try:
        import duckdb
        import pyarrow as pa  # noqa: F401 - registers what live runs hold
    except ImportError as error:
        raise DatabaseError("SQL needs DuckDB and pyarrow: pip install 'rla-agent[lake]'") from error
    found: ModuleType = duckdb
    return found


class Session:
    """A DuckDB connection with the views that a query names."""

    def __init__(self, data_root: Path, query: str) -> None:
        """Open DuckDB and the lake, which takes no look at the runs; `fill` follows.

        Raises:
            ArgumentError: the query is not one SELECT.
            DatabaseError: DuckDB is not installed.
        """
        check_query(query)
        self._root = data_root
        self._query = query
        self._used = views_in(query)
        self._lake = Lake(data_root) if available(data_root) else None
        self._sources = self._lake_files(self._lake) if self._lake is not None else {}
        self._held = _held(self._lake)
        self.connection: duckdb.DuckDBPyConnection = _duckdb().connect(
            config={"python_enable_replacements": False, "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False}
        )  # fmt: skip

    def fill(self, catalogue: Catalogue | None, signed: Sequence[Signed], now: float) -> None:
        """Fill the views; `signed` is what the catalogue's `refresh` has just given.

        Without a catalogue the views hold those of the `signed` runs that the lake has, and no others.

        Raises:
            DatabaseError: too much is not in the lake yet.
        """
        links = catalogue.links() if catalogue is not None else {}
        standing = compare(signed, links, *self._held)
        fresh = self._fresh(catalogue, standing.fresh, now) if catalogue is not None else []
        self._make_views(standing.stale, make_tables(fresh, self._used), now)

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
            columns = chain_columns(
                chain,
                lambda one, names: read_columns(f"{base}/{one}/{PROGRESS_FILE}", names),
                chain_names(chain, base),
            )
        except (BrokenFileError, OSError):
            return None
        return columns, {}

    def _make_views(self, stale: pa.Array, fresh: dict[str, Any], now: float) -> None:
        import pyarrow as pa

        run, sources = self.connection.execute, self._sources
        self.connection.register("lake_stale", pa.table({"run": stale}))
        paths = [path for files in sources.values() for path in files]
        without = "WHERE run NOT IN (SELECT run FROM lake_stale)" if len(stale) else ""
        for name in self._used:
            self.connection.register(f"fresh_{name}", fresh[name])
            columns = ", ".join(fresh[name].schema.names)
            parts = (
                [f"SELECT {columns} FROM fresh_{name}"]  # noqa: S608 - names of ours
                if fresh[name].num_rows or not sources.get(name)
                else []
            )
            if sources.get(name):
                listing = ", ".join(_quoted(escape(path)) for path in sources[name])
                parts.append(f"SELECT {columns} FROM read_parquet([{listing}]) {without}")  # noqa: S608
            text = _VIEWS[name].format(source=" UNION ALL ".join(parts), heard=now - LIVE_S)
            run(f"CREATE TEMP VIEW {name} AS {text}")
        run(f"SET memory_limit = '{MEMORY}'")
        run("SET temp_directory = ''")
        run(f"SET allowed_paths = [{', '.join(map(_quoted, paths))}]")
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")

    def execute(self, clock: Clock) -> duckdb.DuckDBPyConnection:
        """Run the query, until its first rows are there.

        Raises:
            ArgumentError: it names what there is not, or asks for what is not allowed.
            DatabaseError: it took too long, or too much memory, or the lake's files are damaged.
        """
        with clock.limits(self.connection):
            return self.connection.execute(self._query)


class Clock:
    """The seconds that DuckDB may take for a query, for its first rows and for the others together."""

    def __init__(self, timeout_s: float | None) -> None:
        """None, or 0: there is no limit."""
        self._timeout_s = timeout_s or None
        self._left_s = self._timeout_s or 0.0

    @contextmanager
    def limits(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Stop what DuckDB does for the query in here once the time is up.

        Raises:
            ArgumentError: the query names what there is not, or asks for what is not allowed.
            DatabaseError: it took too long, or DuckDB cannot continue.
        """
        duckdb = _duckdb()
        begun = time.monotonic()
        timer = threading.Timer(max(self._left_s, 0.0), connection.interrupt) if self._timeout_s else None
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            yield
        except duckdb.Error as error:
            raise told(error, self._timeout_s) from error
        finally:
            self._left_s -= time.monotonic() - begun
            if timer is not None:
                timer.cancel()
                timer.join()  # else its thread may be the last to hold the connection, while Python ends


def fetched(result: duckdb.DuckDBPyConnection, most: int, clock: Clock) -> list[tuple[Any, ...]]:
    """The next rows of a result, all for 0.

    Raises:
        DatabaseError: DuckDB cannot continue, or the time is up.
    """
    with clock.limits(result):
        rows: list[tuple[Any, ...]] = result.fetchmany(most) if most else result.fetchall()
    return rows


def told(error: Exception, timeout_s: float | None) -> DatabaseError | ArgumentError:
    """What went wrong, in words for people."""
    duckdb = _duckdb()
    text = str(error).partition("\n\nLINE")[0].removeprefix("Binder Error: ").removeprefix("Catalog Error: ")
    if isinstance(error, duckdb.InterruptException):
        took = f"the query took longer than {timeout_s or 0:g} s"
        return DatabaseError(f"{took}\nhint: ask for less, or for more time (--timeout)")
    if isinstance(error, duckdb.OutOfMemoryException):
        return DatabaseError(f"the query needs more than {MEMORY}\nhint: ask for fewer columns, or aggregate")
    if isinstance(error, duckdb.PermissionException):
        return ArgumentError("a query reads the views of this database and no other files\nhint: " + _views())
    if isinstance(error, duckdb.CatalogException):
        name = re.search(r"with name \"?([\w.]+)", text)
        advice = spelling_hint(name[1], list(_VIEWS)) if name else ""
        return ArgumentError(f"{text.splitlines()[0]}\nhint: {advice or _views()}")
    if isinstance(error, duckdb.BinderException | duckdb.ParserException | duckdb.ConversionException):
        return ArgumentError(text)
    return DatabaseError(f"{text}\nhint: rla lake verify tells whether the lake is damaged")


def _views() -> str:
    return f"the views are {', '.join(_VIEWS)}"


def _too_much(what: str) -> DatabaseError:
    return DatabaseError(f"{what} are not in the lake, too many to read for a query\nhint: rla lake build")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _csv_bytes(data_root: Path, run: RunName) -> int:
    try:
        return Path(data_root, LOG, *run, PROGRESS_FILE).stat().st_size
    except OSError:
        return 0
