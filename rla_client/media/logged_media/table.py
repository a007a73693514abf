"""A table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.image import Image
from rla_client.media.logged_media.logged_value import LoggedValue, PathLike, Where, is_frame
from rla_client.media.table_file import send_table, table_csv
from rla_client.stream.column_cells import column_cells
from rla_client.stream.values import to_plain


class Table(LoggedValue):
    """A table: `log({"episodes": Table(data=rows, columns=["seed", "return"])})`.

    Becomes `<time-step>-episodes.csv`. The training loop pays for a copy of the cells; the agent writes the
    file. Lists and dicts are written as JSON; an `Image` becomes a file of its own, and its cell has the
    name.

    Args:
        columns: names; not needed if `data` has them.
        data: rows, each a sequence of cells; a list of dicts, a dict of columns, or a DataFrame.

    Raises:
        ArgumentError: a row does not have a cell for each column.
    """

    default_columns: ClassVar[Sequence[str]] = ()  # used if neither the call nor the data has names

    def __init__(self, columns: Sequence[object] | None = None, data: Any = None) -> None:  # noqa: ANN401 - see above
        names, rows = _rows_of(data)
        given = columns if columns is not None else names or self.default_columns
        self.columns = [str(name) for name in given]
        self.data = rows
        if names and columns is not None:
            places = [names.index(name) if name in names else None for name in self.columns]
            self.data = [[None if place is None else row[place] for place in places] for row in rows]
        for row in self.data:
            self._check(row)

    def _check(self, row: Sequence[Any]) -> None:
        if len(row) != len(self.columns):
            raise ArgumentError(f"this table has {len(self.columns)} columns, got {len(row)} cells")

    def add_data(self, *row: Any) -> None:  # noqa: ANN401 - any cell
        """Append a row.

        Raises:
            ArgumentError: the row does not have a cell for each column.
        """
        self._check(row)
        self.data.append(list(row))

    def csv(self) -> bytes:
        """The content of the file."""
        where = {"cover": True, "add_timestamp": True, "results_dir": None}
        return table_csv(self.columns, self.data, _Cells(f"table-{os.urandom(4).hex()}", where))

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return ".csv"

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        send_table(f"{name}.csv", self.columns, self.data, _Cells(name, where), where)


class _Cells:
    """Converts cells that are not plain data; images of one table are numbered."""

    def __init__(self, table: str, where: Where) -> None:
        self._table, self._where = table, where
        self._names: dict[int, tuple[Image, str]] = {}  # saved images and their names, by id

    def __call__(self, cell: Any) -> Any:  # noqa: ANN401 - any value
        if not isinstance(cell, Image):
            return to_plain(cell)
        if isinstance(cell.data, PathLike):
            return os.fspath(cell.data)
        if id(cell) not in self._names:
            name = f"{self._table}-{len(self._names) + 1}.png"
            self._names[id(cell)] = cell, os.path.basename(cell.save(name, {**self._where, "cover": True}))
        return self._names[id(cell)][1]


def _rows_of(data: Any) -> tuple[list[str], list[list[Any]]]:  # noqa: ANN401
    """The column names, empty if the data has none, and the rows."""
    if data is None:
        return [], []
    if is_frame(data):
        return _of_frame(data)
    if isinstance(data, Mapping):
        names = [str(name) for name in data]
        return names, [list(row) for row in _columns(data)]
    rows = list(data)
    if rows and all(isinstance(row, Mapping) for row in rows):
        keys = list(dict.fromkeys(name for row in rows for name in row))
        return [str(key) for key in keys], [[row.get(key) for key in keys] for row in rows]
    return [], [list(row) for row in rows]


def _of_frame(frame: Any) -> tuple[list[str], list[list[Any]]]:  # noqa: ANN401 - of pandas, or of another library
    """The column names and the rows of a DataFrame; a named index becomes a column."""
    index = getattr(frame, "index", None)
    if index is not None and any(name is not None for name in index.names):
        frame = frame.reset_index()
    names = [str(name) for name in frame.columns]
    if hasattr(frame, "rows"):  # polars
        return names, [list(row) for row in frame.rows()]
    if hasattr(frame, "notna"):
        columns = [column_cells(column, keeps_nan=False) for _, column in frame.items()]
        return names, [list(row) for row in zip(*columns, strict=True)]
    return names, [list(row) for row in frame.to_numpy().tolist()]


def _columns(data: Mapping[Any, Any]) -> Iterator[tuple[Any, ...]]:
    columns = [list(column) for column in data.values()]
    if len({len(column) for column in columns}) > 1:
        raise ArgumentError(f"columns of one table are of one length, got {[len(one) for one in columns]}")
    return zip(*columns, strict=True)
