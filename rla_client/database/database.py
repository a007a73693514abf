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
    """All runs under one data root.

    Args:
        data_root: the folder that holds log/, code/, …

    Raises:
        DatabaseError: it is not a folder.
    """

    def __init__(self, data_root: str | os.PathLike[str]) -> None:
        self.data_root: Path = check_data_root(data_root)
        self.progress: Callable[[int, int], None] | None = None

    def __repr__(self) -> str:
        return f"Database({str(self.data_root)!r})"

    @property
    def archived(self) -> Database:
        """The runs under `arc/`.

        Raises:
            DatabaseError: nothing was archived yet.
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
        """The lake as it is now (see `rla_client.database.lake`); None without one, or without pyarrow."""
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
        """Rows of the runs, oldest first, without pandas; a continued run is one, its newest item.

        Args:
            table: only this task table.
            where: a filter, see `filter_language`.
            since: only runs that began then or later: Unix seconds, a datetime, `2026/11/21`, `36h` or `7d`.
            limit: at most this many, the newest.
            light: leave out hyper-parameters and metrics where the filter needs none.

        Raises:
            NoSuchTableError: unknown table.
            ArgumentError: the filter or the date is not understood.
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
        """How many runs there were at the last look at this database (this does not look again).

        Args:
            table: only of this task table.
            since: only those that began then or later, as in `records`.
        """
        with self._catalogue() as catalogue:
            return catalogue.count(table, since=parse_since(since, clock()))

    def runs(self, table: str | None = None, where: str | None = None, since: Since = None) -> pd.DataFrame:
        """One row a run: fields, every hyper-parameter, the last value of every metric.

        Columns: index, table, time, host, state, time-step, duration (seconds), tags, note,
        display_name, then the hyper-parameters under their (dotted) names, then the metrics; a metric
        whose name is taken is called `last:<name>`.

        Args:
            table: only this task table.
            where: a filter, as in `records`.
            since: only runs that began then or later, as in `records`.

        Raises:
            NoSuchTableError: unknown table.
            ArgumentError: the filter or the date is not understood.
        """
        return self.frame(self.records(table, where, since))

    def frame(self, records: Sequence[Record], *, whole: bool = True) -> pd.DataFrame:
        """Records of `records` as the DataFrame that `runs` gives.

        Args:
            records: one row each, in their order.
            whole: False leaves out hyper-parameters and metrics.
        """
        return runs_frame(self.data_root, records, whole=whole)

    def __iter__(self) -> Iterator[Run]:
        return iter([Run(self.data_root, record) for record in self.records()])

    def find(self, reference: str, table: str | None = None) -> Run:
        """One run by its index, a unique part of it, its display name, or `@last`.

        Args:
            reference: the index, or any part of it that fits no other run; else the whole display name;
                `@last` is the newest.
            table: only look in this task table.

        Raises:
            NoSuchRunError: none fits; AmbiguousRunError: several do, the message lists them.
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
        """The runs with a display name; each run is looked at, so other ways come first."""
        catalogue.refresh(int(clock() * 1e9), self.progress)
        records = catalogue.records(table, light=True)
        return [(one.table, one.index) for one in records if name and one.display_name == name.strip()]

    def find_all(self, reference: str, table: str | None = None) -> list[Record]:
        """Every run that a reference fits, oldest first; of a chain that it fits, the newest item.

        Args:
            reference: as in `find`; it may fit several.
            table: only look in this task table.

        Raises:
            NoSuchRunError: none fits.
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
        """The curves of some runs in long form; `.show()` of it draws them in a notebook.

        Args:
            runs: what `runs()` gave (or a part of it), or `Run`s, records, references, (table, index);
                None: the newest `SHOWN_RUNS`.
            metrics: columns of progress.csv; the last parts of a name are enough where it fits one only;
                None: the likely metric of these runs.
            x: the column that is x.
            bound: keep x up to this, or inside (low, high).
            ranks: of runs with several ranks: `all`, each rank's curve apart; `mean`, their mean at each
                time-step; the number of one, that rank's alone; None: a metric is rank 0's.

        Returns:
            Columns table, index, metric, role, x, value, one row per finite point; runs without a
            metric have no rows for it. A run whose CSV is broken is warned about and left out. `role` is the
            writer, empty for the main process: a metric of another one is called `<metric>@<role>`, and one
            that several have, but not the main process, stands for each of these. Of a mean the columns
            `ranks` and `of_ranks` say how many ranks are in a point, and how many the run has.
            `metric` is as given; `attrs["full_names"]` maps it to the column's name.

        Raises:
            UnknownNameError: a column, or a rank, that none of the runs has; the message names the nearest.
            ArgumentError: `ranks` is none of these.
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
            run: its index or a unique part of it, by default the newest; or a `Run` or record.

        Raises:
            NoSuchRunError, AmbiguousRunError: it is not one run.
            BrokenFileError: a file of samples is damaged.
        """
        from rla_client.database.samples.samples_of_run import Samples

        found = self.find(run) if isinstance(run, str) else run
        return Samples.of_run(self.data_root, found.table, found.index)

    def curve_reader(self) -> Reader:
        """Where its curves come from."""
        return Reader(self.data_root, self.curve_cache(), self.links(), self.lake)

    def sql(self, query: str, timeout_s: float | Clock | None = None) -> duckdb.DuckDBPyConnection:
        """Run one SELECT over the views of docs/how-to/lake.md: runs, params, last, rows, samples and others.

        Args:
            query: in DuckDB's dialect.
            timeout_s: seconds that DuckDB may take for its first rows; or a `Clock`, which counts the others,
                too.

        Returns:
            DuckDB's result: `.df()`, `.pl()`, `.arrow()`, `.fetchall()`.

        Raises:
            ArgumentError: the query is not a SELECT, or names something unknown.
            DatabaseError: it took too long, too much is not in the lake, or DuckDB is not installed.
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
        """Paths of the lake's Parquet files of one of its tables: `runs`, `params`, `samples` and others.

        For Polars, pandas and others; they hold ended runs as of the last `rla lake build`.

        Args:
            name: which of them.

        Raises:
            UnknownNameError: no such kind of file.
        """
        from rla_client.database.lake.manifest import NAMES, read_parts
        from rla_client.database.lake.part_files import plain_path

        if name not in NAMES:
            raise unknown(name, NAMES, f"the lake has no files {name!r}")
        return [plain_path(self.data_root, part, name) for part in read_parts(self.data_root)]

    def links(self) -> dict[tuple[str, str], str]:
        """(table, index) of each run that continues another one (`tree.chains`) → that one's index."""
        with self._catalogue() as catalogue:
            catalogue.refresh_newest(int(clock() * 1e9), self.progress, limit=1)
            return catalogue.links()

    @property
    def state_folder(self) -> Path:
        """Where this machine remembers what it read of it."""
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
