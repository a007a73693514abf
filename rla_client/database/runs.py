"""Python API of a data root.

A database is read through its catalogue, which each call refreshes first. DataFrames are made only here;
`records` gives the same rows without pandas, for the commands, and what few commands need is imported by the
call that needs it: `rla show` has 0.3 s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, extra
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT, CODE, LOG, OTHER_RESULTS, TIME_STEP
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.spelling import full_name, unknown
from rla_client.database.catalogue import Catalogue, state_folder
from rla_client.database.clock import clock
from rla_client.database.curves.chain_curves import chain_names, read_chain
from rla_client.database.curves.curve_cache import CurveCache
from rla_client.database.curves.curve_reader import Reader, read_tables
from rla_client.database.curves.rank_tables import check_rank, names_of_ranks, parse_ranks
from rla_client.database.curves.stream_tables import of_all_roles
from rla_client.database.filter.filter_language import Where
from rla_client.database.filter.filter_scan import fitting
from rla_client.database.filter.since import Since, parse_since
from rla_client.database.records.likely_metric import likely_of
from rla_client.database.records.liveness import with_live_states
from rla_client.database.records.record import Record
from rla_client.database.results_by_name import in_order
from rla_client.database.text.notebook_html import database_html, run_html
from rla_client.database.tree.chains import ChainLink, chain_of
from rla_client.database.tree.data_root import archived_root, check_data_root
from rla_client.database.tree.items import (
    Item,
    check_table,
    checkpoint_names,
    files_below,
    find_tables,
    run_items,
)
from rla_client.database.tree.run_reference import LAST, match_runs, not_one
from rla_client.run.parameters.hyper_params import HyperParams, wrap
from rla_client.run.state.archive_reader import read_archive

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

    from rla_client.database.curves.curve_frame import CurveFrame
    from rla_client.database.lake.lake_reader import Lake
    from rla_client.database.lake.sql_query import Clock
    from rla_client.database.samples.samples_of_run import Samples
    from rla_client.manager import ExpManager


ROWS = 20
SHOWN_RUNS = 50  # newest runs, of curves that are asked for without a choice
DATA_ROOT_ATTRIBUTE = "rla_data_root"  # of DataFrames of runs, so that a plot finds their curves


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
        with extra("read", "a DataFrame of runs"):
            import pandas as pd

        now = clock()
        fixed: pd.DataFrame = pd.DataFrame(
            {
                "index": [record.index for record in records],
                "table": [record.table for record in records],
                "time": pd.to_datetime([datetime.fromtimestamp(record.opened) for record in records]),  # noqa: DTZ006
                "host": [record.host for record in records],
                "state": [record.shown_state(now) for record in records],
                "time-step": [record.time_step for record in records],
                "duration": [record.duration_s for record in records],
                "tags": [list(record.tags) for record in records],
                "note": [record.note for record in records],
                "display_name": [record.display_name for record in records],
            }
        )
        fixed.attrs[DATA_ROOT_ATTRIBUTE] = str(self.data_root)
        if not whole:
            return fixed
        taken = set(fixed.columns)
        hyper = pd.DataFrame(_parameters(records), index=fixed.index)
        hyper.columns = pd.Index([f"hp:{name}" if name in taken else name for name in hyper.columns])
        taken |= set(hyper.columns)
        metrics = pd.DataFrame([record.metrics for record in records], index=fixed.index)
        metrics = metrics.drop(columns=[TIME_STEP], errors="ignore")
        metrics.columns = pd.Index([f"last:{name}" if name in taken else name for name in metrics.columns])
        found: pd.DataFrame = pd.concat([fixed, hyper, metrics], axis=1)
        found.attrs[DATA_ROOT_ATTRIBUTE] = str(self.data_root)
        return found

    def __iter__(self) -> Iterator[Run]:
        return iter([Run(self, record) for record in self.records()])

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
        return Run(self, with_live_states(self.data_root, [record], clock())[0])

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


class Run:
    """One run; files are read when asked for."""

    def __init__(self, database: Database, record: Record) -> None:
        self.database = database
        self.record = record
        self.table = record.table
        self.index = record.index

    def __repr__(self) -> str:
        return f"Run({self.table!r}, {self.index!r})"

    def folder(self, kind: str) -> str:
        """Path of its item of a kind (which need not be there)."""
        return f"{self.database.data_root}/{kind}/{self.table}/{self.index}"

    @property
    def hyper_param(self) -> HyperParams:
        """Hyper-parameters; a copy of your own."""
        return wrap(self.record.hyper)  # type: ignore[no-any-return]

    @property
    def state(self) -> str:
        """running, finished, failed, killed, stalled, unknown, silent, waiting (see `live`) and the like."""
        return self.record.shown_state(clock())

    @property
    def items(self) -> list[Item]:
        """Its items of all kinds."""
        return run_items(self.database.data_root, self.table, self.index)

    def scalars(self, metrics: Sequence[str] | None = None, ranks: str | int | None = None) -> pd.DataFrame:
        """progress.csv as a DataFrame, all columns or some; of a chain the rows of all its items.

        The last parts of a metric's name are enough if only one matches; its column is called as given.

        Args:
            metrics: names of columns; None: all.
            ranks: `mean` of the ranks at each time-step, or the number of one, see `Database.curves`; `all`
                and None: each metric of another rank than 0 is a column `<metric>@rank<N>`.

        Raises:
            UnknownNameError: no such metric, or rank; the message names the nearest.
            BrokenFileError: it is not a table. OSError: it cannot be opened.
        """
        with extra("read", "Run.scalars"):
            import pandas as pd

        table = f"{self.database.data_root}/{LOG}/{self.table}"
        chain = [ChainLink(self.index)]
        if self.record.parent:
            chain = chain_of(self.database.data_root, self.table, self.index)
        which = parse_ranks(ranks)
        check_rank(self.database.data_root, [(self.table, self.index)], which)
        known = names_of_ranks(chain_names(chain, table), which)
        asked = known if metrics is None else [one for name in metrics for one in of_all_roles(name, known)]
        full = {name: full_name(name, known, f"{self!r} has no metric {name!r}") for name in asked}
        columns = read_chain(chain, table, list(full.values()), which)
        found: pd.DataFrame = pd.DataFrame(
            {name: columns[full[name]] for name in full if full[name] in columns}
        )
        return found

    def samples(self) -> Samples:
        """Its samples of a language model (`log_samples`), none where it has none.

        Raises:
            BrokenFileError: a file of them is damaged. OSError: it cannot be read.
        """
        from rla_client.database.samples.samples_of_run import Samples

        return Samples.of_run(self.database.data_root, self.table, self.index)

    @property
    def checkpoints(self) -> list[Path]:
        """Checkpoint files, oldest first."""
        folder = self.folder(CHECKPOINT)
        return [Path(folder, name) for name in checkpoint_names(folder)]

    @property
    def figures(self) -> list[Path]:
        """Files under results, those of one name by their time-steps."""
        return [Path(path) for path in in_order(list(files_below(self.folder(OTHER_RESULTS))))]

    @cached_property
    def archive(self) -> Any:  # noqa: ANN401
        """A manager of the run as it was archived (hyper_param, custom_data, …), None without an entry.

        Raises:
            BrokenFileError: its file is broken.
        """
        for item in self.items:
            if item.kind == ARCHIVE_TESTER:
                return archived_manager(item)
        return None

    def code_diff(self, other: Run) -> str:
        """Unified diff of the code snapshots, from this run to another; empty where one has none.

        Raises:
            LaunchError: the code is in a launcher's archive, and that is damaged.
        """
        from rla_client.database.compare.code_diff import code_differences

        return code_differences(self.folder(CODE), other.folder(CODE))[0]

    def _repr_html_(self) -> str:
        return run_html(self.record, clock())


def archived_manager(item: Item) -> ExpManager:
    """A manager of the run that an archive_tester entry is of; what the archive says of it, as plain data.

    Raises:
        BrokenFileError: the entry is broken, or no archived manager.
        OSError: it cannot be opened.
    """
    from rla_client.manager import ExpManager
    from rla_client.run.item import ItemFolders as Place
    from rla_client.run.resume.find_run import read_run

    content, index = read_archive(item.paths), RunIndex.parse(item.index)
    if content is None or index is None:
        raise BrokenFileError(item.paths[0], "it is not an archived manager")
    base = os.path.abspath(item.paths[0]).rpartition(".")[0]
    root = base.removesuffix(f"/{ARCHIVE_TESTER}/{item.table}/{item.index}")
    loaded: ExpManager = ExpManager.of_run(read_run(Place(root, item.table, index, index.opened), content))
    loaded.hyper_param = wrap(loaded.hyper_param)
    return loaded


def _parameters(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Parameters by name of each run; what is a value in some and a dict in others has both in its column."""
    found = [record.hyper.flat() for record in records]
    names = {name for values in found for name in values}
    for record, values in zip(records, found, strict=True):
        dotted = [name for name in values if "." in name]
        above = {name[:place] for name in dotted for place, letter in enumerate(name) if letter == "."}
        values.update({name: record.hyper.dotted(name) for name in above & (names - values.keys())})
    return found
