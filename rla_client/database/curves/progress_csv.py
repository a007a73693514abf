"""Reader of `progress.csv`.

An append-only table with a header; RLA's files quote nothing, ours quote text properly. Only bytes up to
the last newline count: the rest is a row that is being written, or that was torn by a crash. Rows that are
too short or too long, which RLA's rewriting of headers leaves, keep the cells that have a column.

All bytes are read through `CsvTable`. Whole columns are parsed by pandas (12 ms for 4 MB), or by the csv
module if a row is too long. Quick commands do without pandas: they read the last row (csv_tail.py) or a
sample of rows (chart_points.py).
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import os
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.text.csv_frame import frame_arguments
from rla_client.contract.text.csv_lines import split_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Columns = dict[str, NDArray[np.float64]]
PROGRESS_FILE = "progress.csv"
FULL_NAMES = "full_names"  # in a long frame's attrs: name of a metric or x as passed → name of the column
BLOCK_BYTES = 1 << 20
MAX_HEADER_BYTES = 32 << 20  # 65,536 keys (the client's limit) of 500 bytes
MAX_COLUMNS = 1 << 18  # commas in a header: 65,536 keys, some with commas
MAX_ROW_BYTES = 64 << 20  # twice the longest header
TRUTH_VALUES = {"True": 1.0, "False": 0.0}
PROOF_BYTES = 64
SMALL_BYTES = 32 << 10  # up to this size the csv module is faster than pandas, which takes 0.4 s to import
_NOTHING = float("nan")
_RECORDED_BITS = 0x7FF8_0000_0000_0001  # a NaN marked in its payload bits
_RECORDED = struct.pack("<Q", _RECORDED_BITS)
UNCLOSED = "unexpected end of data"  # the csv module's words
RECORDED_NAN: float = struct.unpack("<d", _RECORDED)[0]


class CsvTable:
    """An open `progress.csv` or similar table; a context manager.

    Attributes:
        columns: names in the header; empty without a complete header.
        has_header: whether there is a complete header.
        start: offset of the first row.
        size: number of written bytes.

    Raises:
        BrokenFileError: the file is not a table.
        OSError: the file cannot be opened.
    """

    __slots__ = ("_path", "columns", "file", "has_header", "size", "start")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self.file = open_plain(path)
        try:
            self.size = written_bytes(self.file)
            header = self._read_header()
            self.start = len(header)
            self.has_header = header.endswith(b"\n")
            self.columns = self._names(header)
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> CsvTable:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def _read_header(self) -> bytes:
        """The first record: one line, or several if a quoted name holds line ends."""
        first = self.file.readline(min(max(self.size, 1), MAX_HEADER_BYTES))  # a hole: one NUL
        if not _is_open(first):
            return first
        length = quotes = 0
        for line in (first + self.file.read(MAX_HEADER_BYTES - len(first))).splitlines(keepends=True):
            length += len(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0:
                return self.read(0, length)
        return first  # the quote is never closed

    def _names(self, header: bytes) -> tuple[str, ...]:
        if header.count(b",") > MAX_COLUMNS:
            raise BrokenFileError(self._path, f"it has more than {MAX_COLUMNS} columns")
        rows = self.cells(header.removeprefix(codecs.BOM_UTF8))  # spreadsheets write a BOM
        return tuple(rows[0]) if rows and self.has_header else ()

    def read(self, start: int, end: int) -> bytes:
        """The bytes from offset `start` to `end`."""
        self.file.seek(start)
        return self.file.read(end - start)

    def whole_rows(self) -> bytes:
        """The bytes of all complete rows."""
        block = self.read(self.start, self.size)
        return block[: block.rfind(b"\n") + 1]

    def line_after(self, offset: int) -> tuple[int, bytes]:
        """Offset and bytes of the first line that begins at `offset` or later."""
        self.file.seek(offset)
        if offset > self.start:
            self.file.readline()
        return self.file.tell(), self.file.readline()

    def cells(self, block: bytes) -> list[list[str]]:
        """Cells of complete lines.

        Raises:
            BrokenFileError: the lines are no CSV.
        """
        text = block.decode("utf-8", "replace")
        if "\0" in text:
            raise BrokenFileError(self._path, "it holds NUL bytes, so it is not CSV")
        try:
            return split_rows(text)
        except csv.Error as error:
            raise BrokenFileError(self._path, f"no CSV ({error})") from error

    def end_of_rows(self, start: int) -> int:
        """Offset after the last newline; `start` if no newline follows it.

        Raises:
            BrokenFileError: the incomplete row at the end is longer than any row may be.
        """
        for end in range(self.size, max(start, self.size - MAX_ROW_BYTES), -BLOCK_BYTES):
            begin = max(start, end - BLOCK_BYTES)
            found = self.read(begin, end).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
        if self.size - start > MAX_ROW_BYTES:
            raise BrokenFileError(self._path, f"it ends in a row of more than {MAX_ROW_BYTES >> 20} MiB")
        return start


def _is_open(line: bytes) -> bool:
    """Whether a quoted cell continues in the next line; a quote inside an unquoted cell opens none."""
    if line.count(b'"') % 2 == 0:
        return False
    try:
        list(csv.reader([line.decode("utf-8", "replace").replace("\0", "")], strict=True))
    except csv.Error as error:
        return UNCLOSED in str(error)
    return False


def read_columns(path: str | os.PathLike[str], names: Sequence[str]) -> Columns:
    """Columns of a table as float64 arrays of equal length, shape (rows,).

    Empty cells and text are NaN, True and False are 1 and 0; a NaN that was recorded has its own bits, see
    `recorded_nan`. Missing columns are left out.

    Raises:
        BrokenFileError: the file is not a table.
        OSError: the file cannot be opened.
    """
    return read_part(path, names).columns


@dataclass(frozen=True, slots=True)
class TablePart:
    """Columns of some rows of a table.

    Attributes:
        columns: as `read_columns` gives them.
        start: offset of the first row.
        end: offset of the next row.
        proof: the last bytes before `end`.
        inode: inode of the file.
    """

    columns: dict[str, Any]
    start: int
    end: int
    proof: bytes
    inode: int


def read_part(
    path: str | os.PathLike[str], names: Sequence[str], after: TablePart | None = None
) -> TablePart:
    """All rows, or those after a part that was read before; otherwise as `read_columns`.

    If the file has been replaced, or has other bytes before that part's end, all rows are given: then `start`
    differs from that part's `end`, or `inode` differs.
    """
    found = _read_cells(path, names, after)
    return replace(found, columns={name: _as_floats(cells) for name, cells in found.columns.items()})


def read_all(
    path: str | os.PathLike[str],
) -> tuple[Columns, dict[str, list[str | None]]]:
    """All columns as `read_columns` gives them; and the texts of columns that hold any, None for a number."""
    cells = _read_cells(path, None).columns
    texts = {name: list(map(_text, column)) for name, column in cells.items() if _may_hold_text(column)}
    columns = {name: _as_floats(column) for name, column in cells.items()}
    return columns, {name: column for name, column in texts.items() if any(column)}


def read_numbers(path: str | os.PathLike[str]) -> dict[str, list[float]]:
    """Numbers of all columns, in order, without gaps and NaN. Needs neither numpy nor pandas.

    Raises:
        BrokenFileError: the file is not a table.
        OSError: the file cannot be opened.
    """
    cells = _read_cells(path, None).columns
    return {
        name: [number for number in map(_number, column) if not math.isnan(number)]
        for name, column in cells.items()
    }


def _may_hold_text(cells: object) -> bool:
    return getattr(getattr(cells, "dtype", None), "kind", "O") not in "fiub"


def _text(cell: object) -> str | None:
    if not isinstance(cell, str) or not cell:
        return None
    value = _number(cell)
    unrecorded = value != value and struct.pack("<d", value) != _RECORDED  # noqa: PLR0124 - NaN
    return cell if unrecorded else None


def _read_cells(
    path: str | os.PathLike[str], names: Sequence[str] | None, after: TablePart | None = None
) -> TablePart:
    """As `read_part`, with unconverted cells, an array or list per column; all columns without names."""
    with CsvTable(path) as table:
        header = table.columns
        places = {name: place for place, name in reversed(list(enumerate(header)))}
        wanted = {name: places[name] for name in (header if names is None else names) if name in places}
        start, inode = table.start, os.fstat(table.file.fileno()).st_ino
        if after is not None and inode == after.inode and table.size >= after.end:
            start = after.end if _before(table, after.end) == after.proof else start
        body = _Part(table.file, start, table.end_of_rows(start))
        proof = _before(table, body.end)
        if not body.left or not wanted:
            return TablePart(dict.fromkeys(wanted, ()), start, body.end, proof, inode)
        parsed = None
        if body.left > SMALL_BYTES:
            parsed = _parse_body(io.BufferedReader(body, BLOCK_BYTES), header, sorted(wanted.values()))
        if body.longest > MAX_ROW_BYTES:
            raise BrokenFileError(os.fspath(path), f"it has a row of more than {MAX_ROW_BYTES >> 20} MiB")
        if parsed is None:
            rows = table.cells(table.read(start, body.end))
            parsed = {
                place: [row[place] if place < len(row) else "" for row in rows] for place in wanted.values()
            }
        columns = {name: parsed[place] for name, place in wanted.items()}
        return TablePart(columns, start, body.end, proof, inode)


def _before(table: CsvTable, end: int) -> bytes:
    """The last bytes before an offset; rows hold their time of writing, so these identify the content."""
    return table.read(max(end - PROOF_BYTES, 0), end)


class _Part(io.RawIOBase):
    """Stream over a range of a file, so that no table is loaded at once."""

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        self._file, self._at, self.end = file, start, end
        self._row = 0  # bytes read of the last row
        self.longest = 0  # bytes of the longest row that crosses the end of a block

    @property
    def left(self) -> int:
        """Number of bytes that are not read yet."""
        return self.end - self._at

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        """See `io.RawIOBase`."""
        if self.longest > MAX_ROW_BYTES:
            message = "a row is too long"  # the parser would load several copies of it
            raise ValueError(message)
        self._file.seek(self._at)
        block = self._file.read(min(len(buffer), self.left))
        first = block.find(b"\n")
        self.longest = max(self.longest, self._row + (len(block) if first < 0 else first))
        self._row = self._row + len(block) if first < 0 else len(block) - block.rfind(b"\n") - 1
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)


def _parse_body(body: io.BufferedReader, columns: Sequence[str], places: list[int]) -> dict[int, Any] | None:
    """Columns by place, parsed by pandas; None without pandas, or if a row has too many cells."""
    try:
        import pandas as pd
    except ModuleNotFoundError:  # optional; the csv module gives the same, more slowly
        return None
    try:
        frame = pd.read_csv(
            body,
            header=None,
            names=list(range(len(columns))),
            usecols=places,
            skip_blank_lines=False,
            na_values=[""],
            **frame_arguments(),
        )
    except (pd.errors.ParserError, ValueError):
        return None
    return {place: frame[place].to_numpy() for place in places}


def _as_floats(cells: NDArray[Any] | list[Any]) -> NDArray[np.float64]:
    import numpy as np

    if not _may_hold_text(cells):
        return np.asarray(cells, dtype=np.float64)
    return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: object) -> float:
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return TRUTH_VALUES.get(str(cell).strip(), _NOTHING)
    return RECORDED_NAN if value != value and isinstance(cell, str) else value  # noqa: PLR0124 - NaN


def recorded_nan(column: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mask of the values that were recorded as NaN; other NaN were not recorded at all."""
    import numpy as np

    found: NDArray[np.bool_] = np.ascontiguousarray(column).view(np.uint64) == _RECORDED_BITS
    return found


def warn_broken(error: Exception) -> None:
    """Warn about a file that cannot be read, once per calling line."""
    warnings.warn(str(error), stacklevel=3)
