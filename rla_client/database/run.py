"""Run of a database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import extra
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT, CODE, LOG, OTHER_RESULTS
from rla_client.contract.text.spelling import full_name
from rla_client.database.archived_manager import archived_manager
from rla_client.database.clock import clock
from rla_client.database.curves.chain_curves import chain_names, read_chain
from rla_client.database.curves.rank_tables import check_rank, names_of_ranks, parse_ranks
from rla_client.database.curves.stream_tables import of_all_roles
from rla_client.database.records.record import Record
from rla_client.database.results_by_name import in_order
from rla_client.database.text.notebook_html import run_html
from rla_client.database.tree.chains import ChainLink, chain_of
from rla_client.database.tree.items import Item, checkpoint_names, files_below, run_items
from rla_client.run.parameters.hyper_params import HyperParams, wrap

if TYPE_CHECKING:
    import pandas as pd

    from rla_client.database.samples.samples_of_run import Samples


class Run:
    """One run of a database; its files are read on demand.

    Args:
        data_root: data root of the database.
        record: what the catalogue has of the run.
    """

    def __init__(self, data_root: Path, record: Record) -> None:
        self.data_root = data_root
        self.record = record
        self.table = record.table
        self.index = record.index

    def __repr__(self) -> str:
        return f"Run({self.table!r}, {self.index!r})"

    def folder(self, kind: str) -> str:
        """Path of the run's item of a kind, whether or not the item exists."""
        return f"{self.data_root}/{kind}/{self.table}/{self.index}"

    @property
    def hyper_param(self) -> HyperParams:
        """The hyper-parameters; a copy that the caller may change."""
        return wrap(self.record.hyper)  # type: ignore[no-any-return]

    @property
    def state(self) -> str:
        """The state as of now: running, finished, failed, killed, stalled, unknown, silent, waiting, …."""
        return self.record.shown_state(clock())

    @property
    def items(self) -> list[Item]:
        """The run's items of all kinds."""
        return run_items(self.data_root, self.table, self.index)

    def scalars(self, metrics: Sequence[str] | None = None, ranks: str | int | None = None) -> pd.DataFrame:
        """progress.csv as a DataFrame; of a chain the rows of all its items.

        Args:
            metrics: names of columns; the last parts of a name are enough if only one column matches, and the
                result's column is called as passed; None: all columns.
            ranks: `mean` of the ranks at each time-step, or the number of one, see `Database.curves`; `all`
                and None: a metric of a rank other than 0 is a column `<metric>@rank<N>`.

        Raises:
            UnknownNameError: the run has no such metric or rank; the message names the nearest.
            BrokenFileError: progress.csv is not a table.
            OSError: progress.csv cannot be opened.
        """
        with extra("read", "Run.scalars"):
            import pandas as pd

        table = f"{self.data_root}/{LOG}/{self.table}"
        chain = [ChainLink(self.index)]
        if self.record.parent:
            chain = chain_of(self.data_root, self.table, self.index)
        which = parse_ranks(ranks)
        check_rank(self.data_root, [(self.table, self.index)], which)
        known = names_of_ranks(chain_names(chain, table), which)
        asked = known if metrics is None else [one for name in metrics for one in of_all_roles(name, known)]
        full = {name: full_name(name, known, f"{self!r} has no metric {name!r}") for name in asked}
        columns = read_chain(chain, table, list(full.values()), which)
        found: pd.DataFrame = pd.DataFrame(
            {name: columns[full[name]] for name in full if full[name] in columns}
        )
        return found

    def samples(self) -> Samples:
        """The run's samples (`log_samples`); empty if it has none.

        Raises:
            BrokenFileError: a file of samples is damaged.
            OSError: a file of samples cannot be read.
        """
        from rla_client.database.samples.samples_of_run import Samples

        return Samples.of_run(self.data_root, self.table, self.index)

    @property
    def checkpoints(self) -> list[Path]:
        """Checkpoint files, oldest first."""
        folder = self.folder(CHECKPOINT)
        return [Path(folder, name) for name in checkpoint_names(folder)]

    @property
    def figures(self) -> list[Path]:
        """Files below results/, by name and then by time-step."""
        return [Path(path) for path in in_order(list(files_below(self.folder(OTHER_RESULTS))))]

    @cached_property
    def archive(self) -> Any:  # noqa: ANN401
        """A manager of the run as it was archived (hyper_param, custom_data, …); None without an archive.

        Raises:
            BrokenFileError: the archive's file is broken.
        """
        for item in self.items:
            if item.kind == ARCHIVE_TESTER:
                return archived_manager(item)
        return None

    def code_diff(self, other: Run) -> str:
        """Unified diff of the code snapshots, from this run to another; empty if either has none.

        Raises:
            LaunchError: the code is in a launcher's archive that is damaged.
        """
        from rla_client.database.compare.code_diff import code_differences

        return code_differences(self.folder(CODE), other.folder(CODE))[0]

    def _repr_html_(self) -> str:
        return run_html(self.record, clock())
