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
    """Samples of one run, some of them or all; texts are read when they are asked for.

    `len`, iteration and `[n]` give whole rows as dicts.
    """

    def __init__(self, index: SampleIndex, rows: Sequence[int] | None = None) -> None:
        self.index = index
        self.rows = list(range(len(index))) if rows is None else list(rows)

    @classmethod
    def of_run(cls, data_root: Path, table: str, run: str) -> Samples:
        """All samples of a run; of one that was continued on another machine those of all its items.

        What may not be read is left out, with a warning.

        Raises:
            BrokenFileError: a file is damaged. OSError: it cannot be read.
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
        """Those that pass.

        Args:
            where: such as `reward < 0 and tokens_completion > 500`.
            step: a time-step, or `100:200`, `100:`, `:200`.
            group: of one prompt.
            name: that they were logged under.
            grep: a text that they contain.

        Raises:
            ArgumentError: something of it is not understood.
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
        """In the order of a column, the least first; with a `-` before its name the greatest first.

        Raises:
            UnknownNameError: there is no such column.
        """
        descending = by.startswith("-")
        column = by[1:] if descending else by
        return Samples(self.index, ordered(self.index, self.rows, column, descending=descending))

    def head(self, count: int) -> Samples:
        """The first so many."""
        return Samples(self.index, self.rows[:count])

    def find(self, name: str) -> dict[str, Any]:
        """The sample of an id.

        Raises:
            ArgumentError: there is none.
        """
        for row, known in enumerate(self.index.columns.get("id", ())):
            if known == name:
                return Samples(self.index, [row])[0]
        raise ArgumentError(f"the run has no sample {name!r}")

    def frame(self, *, whole: bool = True) -> pd.DataFrame:
        """As a DataFrame.

        Args:
            whole: False gives the index alone: numbers, and the first 80 characters of texts.
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
    """The samples of several runs as a DataFrame, with the run's `table` and `index` before each row.

    Lists and dicts are JSON, so that every row of a column has one type.
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
