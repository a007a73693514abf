"""SQL session over the lake with the runs outside of it.

The tables are the views `runs`, `params`, `last`, `rows`, `system`, `files` and `samples`. Runs that are
unchanged in the lake come from its Parquet files; all others (live runs, runs changed since the last build,
chains) are read from their files first, within `MAX_FRESH_RUNS` and `MAX_FRESH_BYTES`. Only the views in the
query are filled. A chain is one run, as everywhere.

Only one SELECT is accepted, and it runs in a process of its own (`sql_process`). DuckDB may open the lake's
files, but no other file, no network, no extension and no Python variable, and its settings are locked:
untrusted queries are safe to run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError
from rla_client.contract.layout import LOG
from rla_client.database.catalogue import COLUMNS, Catalogue, Signed
from rla_client.database.change_signatures import SamplesSignatures
from rla_client.database.curves.chain_curves import chain_names, read_chain
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.curves.stream_tables import roles_of, table_of
from rla_client.database.lake.fresh_runs import compare
from rla_client.database.lake.lake_reader import Lake, RunName, available
from rla_client.database.lake.part_files import check_file, plain_path
from rla_client.database.lake.run_tables import LakeRun, make_tables, read_files, read_rows, read_system
from rla_client.database.lake.sample_table import sample_table
from rla_client.database.lake.sql_query import Clock, Query
from rla_client.database.lake.sql_views import VIEWS
from rla_client.database.records.liveness import with_live_states
from rla_client.database.records.record import LIVE_S
from rla_client.database.tree.chains import chain_of

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Content = tuple[dict[str, NDArray[np.float64]], dict[str, list[str | None]]]  # as `read_all` gives it
MAX_FRESH_RUNS = 20_000  # outside of the lake, for `runs`, `params` and `last`; about 1 kB each
MAX_FRESH_BYTES = 256 << 20  # of their progress.csv, for `rows`


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


def check_query(query: str) -> None:
    """Check that a query is one SELECT.

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
    """Names of the views in a query."""
    return [name for name in VIEWS if re.search(rf"\b{name}\b", query, re.IGNORECASE)]


def _duckdb() -> ModuleType:
    try:
        import duckdb
        import pyarrow as pa  # noqa: F401 - DuckDB needs it for tables of live runs
    except ImportError as error:
        raise DatabaseError("SQL needs DuckDB and pyarrow: pip install 'rla-agent[lake]'") from error
    found: ModuleType = duckdb
    return found


class SqlSession:
    """A query with the sources of its views."""

    def __init__(self, data_root: Path, query: str) -> None:
        """Open the lake, without checking its runs, and start the query's process; call `fill` next.

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
        """Collect the content of the views.

        Args:
            catalogue: the refreshed catalogue; without it the views hold only runs of the lake.
            signed: result of its `refresh`.
            now: Unix seconds.

        Raises:
            DatabaseError: too many runs are not in the lake yet.
        """
        import pyarrow as pa

        links = catalogue.links() if catalogue is not None else {}
        stale, unread = compare(signed, links, *self._held)
        fresh = self._fresh(catalogue, unread, now) if catalogue is not None else []
        tables = make_tables(fresh, self._used)
        self._tables = {f"fresh_{name}": tables[name] for name in self._used}
        self._tables["lake_stale"] = pa.table({"run": stale})
        self._tables["lake_stale_samples"] = self._tables["lake_stale"]
        if "samples" in self._used and catalogue is not None:
            self._fill_samples(signed, links, now)
        self._heard = now - LIVE_S

    def _fill_samples(self, signed: Sequence[Signed], links: Mapping[RunName, str], now: float) -> None:
        """Collect samples, which have signatures separate from the run's."""
        import pyarrow as pa

        held = self._lake.all_signatures() if self._lake is not None else {}
        signatures = SamplesSignatures(self._root, int(now * 1e9))
        later = {(table, parent) for (table, _), parent in links.items()}
        stale = {run for run, (_, samples) in held.items() if samples}
        fresh = []
        for table, index, *_ in signed:
            run = (table, index)
            alone = run not in later and run not in links
            if run in stale and alone and signatures.of(*run)[0] == held[run][1]:
                stale.remove(run)
            elif run not in later:
                fresh.append(run)
        self._tables["fresh_samples"] = sample_table(self._root, fresh, warnings.warn)
        names = pa.array([f"{table}/{index}" for table, index in sorted(stale)], pa.string())
        self._tables["lake_stale_samples"] = pa.table({"run": names})

    def _lake_files(self, lake: Lake) -> dict[str, list[str]]:
        """View → paths of its files, without parts that have an unreadable file."""
        for one in list(lake.parts):
            try:
                for name in self._used:
                    check_file(self._root, one.part, name)
            except (BrokenFileError, OSError) as error:
                lake.leave_out(one.part, error)
        return {name: [plain_path(self._root, one.part, name) for one in lake.parts] for name in self._used}

    def _fresh(self, catalogue: Catalogue, wanted: Sequence[RunName], now: float) -> list[LakeRun]:
        if len(wanted) > MAX_FRESH_RUNS:
            raise _too_much(f"{len(wanted)} runs")
        records = [catalogue.record(*run) for run in wanted]
        states = {
            (one.table, one.index): one.shown_state(now) for one in with_live_states(self._root, records, now)
        }
        place = COLUMNS.index("state")
        found: list[LakeRun] = []
        total = 0
        for run in wanted:
            row = catalogue.row(*run)
            if row is None:
                continue
            data = LakeRun((*row[0][:place], states.get(run), *row[0][place + 1 :]), row[1])
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
        """A run's rows, or those of all items of its chain (without texts); None if they are broken."""
        base = f"{self._root}/{LOG}/{table}"
        try:
            chain = chain_of(self._root, table, index)
            if len(chain) == 1:
                return read_rows(self._root, table, index)
            return read_chain(chain, base, chain_names(chain, base)), {}
        except (BrokenFileError, OSError):
            return None

    def execute(self, clock: Clock) -> duckdb.DuckDBPyConnection:
        """Run the query until its first rows are there; raises the errors of `Query.execute`."""
        return self._process.execute(
            self._query, clock, files=self._sources, tables=self._tables, heard=self._heard
        )


def _too_much(what: str) -> DatabaseError:
    return DatabaseError(f"{what} are not in the lake, too many to read for a query\nhint: rla lake build")


def _csv_bytes(data_root: Path, run: RunName) -> int:
    folder, total = Path(data_root, LOG, *run), 0
    for role in ("", *roles_of(folder)):
        with suppress(OSError):
            total += (folder / table_of(PROGRESS_FILE, role)).stat().st_size
    return total
