"""Database of runs: the Python API of a data root.

A database is read through its catalogue, which each call refreshes first. DataFrames are made only in
`runs_frame` and `curve_frame`; `records` gives the same rows without pandas, for the commands. A module that
few commands need is imported by the call that needs it: `rla show` has to start within 0.3 s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import extra
from rla_client.contract.layout import TIME_STEP
from rla_client.contract.text.spelling import unknown
from rla_client.database.catalogue import Catalogue, state_folder
from rla_client.database.clock import clock
from rla_client.database.curves.curve_cache import CurveCache
from rla_client.database.curves.curve_reader import Reader, read_tables
from rla_client.database.curves.rank_tables import parse_ranks
from rla_client.database.filter.filter_language import Where
from rla_client.database.filter.filter_scan import fitting
from rla_client.database.filter.since import Since, parse_since
from rla_client.database.records.likely_metric import likely_of
from rla_client.database.records.liveness import with_live_states
from rla_client.database.records.record import Record
from rla_client.database.run import Run
from rla_client.database.runs_frame import runs_frame
from rla_client.database.text.notebook_html import database_html
from rla_client.database.tree.data_root import archived_root, check_data_root
from rla_client.database.tree.items import check_table, find_tables
from rla_client.database.tree.run_reference import LAST, match_runs, not_one

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

    from rla_client.database.curves.curve_frame import CurveFrame
    from rla_client.database.lake.lake_reader import Lake
    from rla_client.database.lake.sql_query import Clock
    from rla_client.database.samples.samples_of_run import Samples


ROWS = 20
SHOWN_RUNS = 50  # newest runs: those of `curves` without a choice of runs


class Database:
    """All runs below one data root.

    Args:
        data_root: the folder that holds log/, code/, …

    Raises:
        DatabaseError: `data_root` is not a folder.
    """

    def __init__(self, data_root: str | os.PathLike[str]) -> None:
        self.data_root: Path = check_data_root(data_root)
        self.progress: Callable[[int, int], None] | None = None

    def __repr__(self) -> str:
        return f"Database({str(self.data_root)!r})"

    @property
    def archived(self) -> Database:
        """The archived runs, those below `arc/`.

        Raises:
            DatabaseError: no run has been archived yet.
        """
        return Database(archived_root(self.data_root))

    def _catalogue(self) -> Catalogue:
        return Catalogue(self.data_root, seed=self._lake_rows)

    def _lake_rows(
        self, wanted: Sequence[tuple[str, str, str]]
    ) -> Mapping[tuple[str, str], tuple[object, ...]]:
        lake = self.lake()
        return lake.rows(wanted) if lake is not None else {}

    def lake(self) -> Lake | None:
        """The lake as it is now (see `rla_client.database.lake`); None if there is none, or no pyarrow."""
        from rla_client.database.lake.lake_reader import Lake, available

        return Lake(self.data_root) if available(self.data_root) else None

    def tables(self) -> list[str]:
        """Names of the task tables."""
        return find_tables(self.data_root)

    def records(
        self,
        table: str | None = None,
        where: str | None = None,
        since: Since = None,
        limit: int | None = None,
        *,
        light: bool = False,
    ) -> list[Record]:
        """Records of the runs, oldest first, without pandas; a chain of continued runs is its newest item.

        Args:
            table: only this task table.
            where: a filter, see `filter_language`.
            since: only runs that began at or after it: Unix seconds, a datetime, `2026/11/21`, `36h`, `7d`.
            limit: only the newest so many.
            light: leave out hyper-parameters and metrics, unless the filter needs them.

        Raises:
            NoSuchTableError: unknown table.
            ArgumentError: the filter or the date cannot be parsed.
        """
        test = Where(where) if where else None
        start = parse_since(since, clock())
        if table is not None:
            check_table(self.data_root, table)
        with self._catalogue() as catalogue:
            now_ns = int(clock() * 1e9)
            if test is None and limit is not None:
                catalogue.refresh_newest(now_ns, self.progress, limit=limit, table=table, since=start)
            else:
                catalogue.refresh(now_ns, self.progress)
            if test is not None:
                return fitting(
                    self.data_root, catalogue, test, clock(), table=table, since=start, limit=limit
                )
            found = catalogue.records(table, since=start, limit=limit, light=light)
        return with_live_states(self.data_root, found, clock())

    def count(self, table: str | None = None, since: Since = None) -> int:
        """Number of runs as of the last refresh; does not refresh the catalogue.

        Args:
            table: only this task table.
            since: only runs that began at or after this, as in `records`.
        """
        with self._catalogue() as catalogue:
            return catalogue.count(table, since=parse_since(since, clock()))

    def runs(self, table: str | None = None, where: str | None = None, since: Since = None) -> pd.DataFrame:
        """One row per run: its fields, every hyper-parameter, and the last value of every metric.

        Columns: index, table, time, host, state, time-step, duration (seconds), tags, note, display_name,
        then the hyper-parameters under their dotted names, then the metrics. Where a name is in use
        already, a hyper-parameter is called `hp:<name>` and a metric `last:<name>`.

        Args:
            table: only this task table.
            where: a filter, as in `records`.
            since: only runs that began at or after this, as in `records`.

        Raises:
            NoSuchTableError: unknown table.
            ArgumentError: the filter or the date cannot be parsed.
        """
        return self.frame(self.records(table, where, since))

    def frame(self, records: Sequence[Record], *, whole: bool = True) -> pd.DataFrame:
        """DataFrame of records, with the columns that `runs` gives.

        Args:
            records: one row each, in this order.
            whole: False leaves out hyper-parameters and metrics.
        """
        return runs_frame(self.data_root, records, whole=whole)

    def __iter__(self) -> Iterator[Run]:
        return iter([Run(self.data_root, record) for record in self.records()])

    def find(self, reference: str, table: str | None = None) -> Run:
        """One run by its index, a unique part of it, its display name, or `@last`.

        Args:
            reference: the index, or any part of it that matches no other run; else the whole display name;
                `@last` is the newest run.
            table: only this task table.

        Raises:
            NoSuchRunError: no run matches.
            AmbiguousRunError: several runs match; the message lists them.
            NoSuchTableError: unknown table.
        """
        if table is not None:
            check_table(self.data_root, table)
        now_ns = int(clock() * 1e9)
        with self._catalogue() as catalogue:
            if reference == LAST:
                catalogue.refresh_newest(now_ns, self.progress, limit=1, table=table)
            else:
                catalogue.refresh_names(now_ns)
            names = catalogue.names(table)
            found = match_runs(names, reference) or self._called(catalogue, reference, table)
            if len(found) != 1:
                raise not_one(found, names, reference)
            catalogue.refresh_run(*found[0], now_ns)
            record = catalogue.record(*found[0])
        return Run(self.data_root, with_live_states(self.data_root, [record], clock())[0])

    def _called(self, catalogue: Catalogue, name: str, table: str | None) -> list[tuple[str, str]]:
        """(table, index) of the runs with this display name. It refreshes all runs: other ways come first."""
        catalogue.refresh(int(clock() * 1e9), self.progress)
        records = catalogue.records(table, light=True)
        return [(one.table, one.index) for one in records if name and one.display_name == name.strip()]

    def find_all(self, reference: str, table: str | None = None) -> list[Record]:
        """Every run that a reference matches, oldest first; of a chain that it matches, the newest item.

        Args:
            reference: as in `find`; it may match several runs.
            table: only this task table.

        Raises:
            NoSuchRunError: no run matches.
        """
        with self._catalogue() as catalogue:
            catalogue.refresh_names(int(clock() * 1e9))
            names = catalogue.names(table)
            found = set() if reference == LAST else set(match_runs(names, reference))
            found = found or set(self._called(catalogue, reference, table))
        if len(found) <= 1:
            return [self.find(reference, table).record]
        return [record for record in self.records(table) if (record.table, record.index) in found]

    def curves(
        self,
        runs: object = None,
        metrics: str | Sequence[str] | None = None,
        x: str = TIME_STEP,
        bound: float | tuple[float, float] | None = None,
        ranks: str | int | None = None,
    ) -> CurveFrame:
        """Curves of runs in long form; `.show()` of the result draws them in a notebook.

        Args:
            runs: a DataFrame from `runs()` or a part of it, or `Run`s, records, references or (table,
                index) pairs; None: the newest `SHOWN_RUNS` runs.
            metrics: columns of progress.csv; the last parts of a name are enough if only one column
                matches; None: the likely metric of these runs.
            x: column of the x axis.
            bound: keep points with x up to this value, or inside (low, high).
            ranks: which ranks of runs with several: `all`, a curve for each rank; `mean`, their mean at
                each time-step; a number, that rank alone; None: rank 0.

        Returns:
            Columns table, index, metric, role, x, value, one row per finite point; a run without a metric
            has no rows for it. A run with a broken CSV is left out, with a warning. `role` is the writing
            process, empty for the main one: a metric of another process is called `<metric>@<role>`; a
            name that only other processes have stands for all of them. With `mean`, the columns `ranks`
            and `of_ranks` count the ranks in a point and the ranks of the run. `metric` is the name as
            passed; `attrs["full_names"]` maps it to the column's name.

        Raises:
            UnknownNameError: no run has this column or rank; the message names the nearest.
            ArgumentError: `ranks` is none of the above.
        """
        with extra("read", "a DataFrame of curves"):
            from rla_client.database.curves.curve_frame import long_frame

        pairs = self._pairs(self.records(limit=SHOWN_RUNS) if runs is None else runs)
        if metrics is None:
            wanted = set(pairs)
            metrics = likely_of([one for one in self.records() if self._name(one) in wanted]) or []
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        read = partial(read_tables, self.curve_reader())
        return long_frame(self.data_root, read, pairs, names, x=x, bound=bound, ranks=parse_ranks(ranks))

    def samples(self, run: str | Run | Record = LAST) -> Samples:
        """Samples of one run (`log_samples`).

        Args:
            run: a reference as in `find`, by default the newest run; or a `Run` or record.

        Raises:
            NoSuchRunError, AmbiguousRunError: the reference does not match exactly one run.
            BrokenFileError: a file of samples is damaged.
        """
        from rla_client.database.samples.samples_of_run import Samples

        found = self.find(run) if isinstance(run, str) else run
        return Samples.of_run(self.data_root, found.table, found.index)

    def curve_reader(self) -> Reader:
        """The reader of this database's curves."""
        return Reader(self.data_root, self.curve_cache(), self.links(), self.lake)

    def sql(self, query: str, timeout_s: float | Clock | None = None) -> duckdb.DuckDBPyConnection:
        """Run one SELECT over the views of docs/how-to/lake.md: runs, params, last, rows, samples and others.

        Args:
            query: in DuckDB's dialect.
            timeout_s: seconds that DuckDB may take for its first rows; or a `Clock`, which also counts the
                time for the other rows.

        Returns:
            DuckDB's result: `.df()`, `.pl()`, `.arrow()`, `.fetchall()`.

        Raises:
            ArgumentError: the query is not a SELECT, or uses an unknown name.
            DatabaseError: the query took too long, too many runs are not in the lake, or DuckDB is missing.
        """
        from concurrent.futures import ThreadPoolExecutor

        from rla_client.database.lake.sql_query import Clock
        from rla_client.database.lake.sql_session import SqlSession, check_query

        check_query(query)
        with self._catalogue() as catalogue, ThreadPoolExecutor(1) as aside:
            now = clock()
            opening = aside.submit(SqlSession, self.data_root, query)
            signed = catalogue.refresh(int(now * 1e9), self.progress)
            session = opening.result()
            session.fill(catalogue, signed, now)
        return session.execute(timeout_s if isinstance(timeout_s, Clock) else Clock(timeout_s))

    def lake_files(self, name: str) -> list[str]:
        """Paths of the Parquet files of one table of the lake, for Polars, pandas and others.

        They hold the runs that had ended at the last `rla lake build`.

        Args:
            name: table of the lake: `runs`, `params`, `samples` and others.

        Raises:
            UnknownNameError: the lake has no such table.
        """
        from rla_client.database.lake.manifest import NAMES, read_parts
        from rla_client.database.lake.part_files import plain_path

        if name not in NAMES:
            raise unknown(name, NAMES, f"the lake has no files {name!r}")
        return [plain_path(self.data_root, part, name) for part in read_parts(self.data_root)]

    def links(self) -> dict[tuple[str, str], str]:
        """(table, index) of each run that continues another one (`tree.chains`) → index of the other."""
        with self._catalogue() as catalogue:
            catalogue.refresh_newest(int(clock() * 1e9), self.progress, limit=1)
            return catalogue.links()

    @property
    def state_folder(self) -> Path:
        """Folder on this machine for the catalogue and the curve cache of this database."""
        return state_folder(self.data_root)

    def curve_cache(self) -> CurveCache:
        """The column cache of this database on this machine."""
        return CurveCache(self.state_folder)

    def _pairs(self, runs: Any) -> list[tuple[str, str]]:  # noqa: ANN401
        columns = getattr(runs, "columns", None)
        if columns is not None and {"table", "index"} <= set(columns):
            return list(zip(runs["table"], runs["index"], strict=True))
        chosen: list[Any] = [runs] if isinstance(runs, str | Run | Record) else list(runs)
        if all(isinstance(entry, tuple) for entry in chosen):
            return chosen
        return [
            self._name(entry) if isinstance(entry, Run | Record) else self._name(self.find(str(entry)))
            for entry in chosen
        ]

    @staticmethod
    def _name(run: Run | Record) -> tuple[str, str]:
        return run.table, run.index

    def _repr_html_(self) -> str:
        return database_html(self.data_root, self.records(limit=ROWS), clock())
