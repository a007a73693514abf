"""Python API of a run's samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, extra
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.samples.sample_query import containing, matching, ordered, parse_steps
from rla_client.database.tree.chains import chain_of
from rla_client.database.tree.items import tell_closed

if TYPE_CHECKING:
    import pandas as pd

    from rla_client.database.records.record import Record


class Samples:
    """All or some samples of one run; texts are read on demand.

    Iteration and `[n]` give whole rows as dicts.
    """

    def __init__(self, index: SampleIndex, rows: Sequence[int] | None = None) -> None:
        self.index = index
        self.rows = list(range(len(index))) if rows is None else list(rows)

    @classmethod
    def of_run(cls, data_root: Path, table: str, run: str) -> Samples:
        """All samples of a run, including those of all items of its chain.

        Files without permission are left out, with a warning.

        Raises:
            BrokenFileError: a file is damaged.
            OSError: a file cannot be read.
        """
        index = SampleIndex(data_root, table, chain_of(data_root, table, run))
        index.refresh()
        for path in index.unread:
            tell_closed(path)
        return cls(index)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (json.loads(line) for _, line in self.index.texts(self.rows))

    def __getitem__(self, number: int) -> dict[str, Any]:
        (found,) = self.index.texts([self.rows[number]])
        row: dict[str, Any] = json.loads(found[1])
        return row

    def __repr__(self) -> str:
        return f"<{len(self)} samples>"

    def where(
        self,
        where: str | None = None,
        *,
        step: str | float | None = None,
        group: str | None = None,
        name: str | None = None,
        grep: str | None = None,
    ) -> Samples:
        """The samples that pass all conditions.

        Args:
            where: a filter such as `reward < 0 and tokens_completion > 500`.
            step: a time-step, or `100:200`, `100:`, `:200`.
            group: only this group (samples of one prompt).
            name: only samples logged under this name.
            grep: only samples that contain this text.

        Raises:
            ArgumentError: a condition cannot be parsed.
        """
        steps = None if step is None else parse_steps(str(step))
        found = matching(self.index, where, steps=steps, group=group, name=name)
        if len(self.rows) < len(self.index):
            own = set(self.rows)
            found = [row for row in found if row in own]
        if grep is not None:
            found = list(containing(self.index, found, grep))
        return Samples(self.index, found)

    def sort(self, by: str) -> Samples:
        """The samples sorted by a column, ascending, or descending with a `-` before its name.

        Raises:
            UnknownNameError: there is no such column.
        """
        descending = by.startswith("-")
        column = by[1:] if descending else by
        return Samples(self.index, ordered(self.index, self.rows, column, descending=descending))

    def head(self, count: int) -> Samples:
        """The first `count` samples."""
        return Samples(self.index, self.rows[:count])

    def find(self, name: str) -> dict[str, Any]:
        """The sample with an id.

        Raises:
            ArgumentError: there is none.
        """
        for row, known in enumerate(self.index.columns.get("id", ())):
            if known == name:
                return Samples(self.index, [row])[0]
        raise ArgumentError(f"the run has no sample {name!r}")

    def frame(self, *, whole: bool = True) -> pd.DataFrame:
        """The samples as a DataFrame.

        Args:
            whole: False gives only the index: numbers, and the first 80 characters of texts.
        """
        with extra("read", "a DataFrame of samples"):
            import pandas as pd

        columns = self.index.columns
        found: pd.DataFrame = pd.DataFrame(
            list(self)
            if whole
            else {name: [column[row] for row in self.rows] for name, column in columns.items()}
        )
        return found


def samples_frame(data_root: Path, records: Sequence[Record]) -> pd.DataFrame:
    """Samples of several runs as a DataFrame, with the run's `table` and `index` in each row.

    Lists and dicts become JSON, so that each column has one type.
    """
    with extra("read", "a DataFrame of samples"):
        import pandas as pd

    rows = [
        {"table": one.table, "index": one.index, **{name: _cell(value) for name, value in row.items()}}
        for one in records
        for row in Samples.of_run(data_root, one.table, one.index)
    ]
    found: pd.DataFrame = pd.DataFrame(rows)
    return found


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
