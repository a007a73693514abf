"""Whole columns of `progress.csv`, read fast.

Only bytes up to the last newline count: what follows is a row that is being written, or one torn by a crash.
Columns come through pandas (12 ms for 4 MB), and by the csv module where a row is too long; what a command
shows at once needs no pandas. Rows that are too short or too long, as the original's rewriting of headers
left them, keep the cells that have a column.
"""

from __future__ import annotations

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
from rla_client.database.curves.csv_rows import MAX_HEADER_BYTES, TRUTH_VALUES, parse_header, split_block

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Columns = dict[str, NDArray[np.float64]]
PROGRESS_FILE = "progress.csv"
FULL_NAMES = "full_names"  # of a long frame's attrs: metric or x as asked for -> the column's name
BLOCK_BYTES = 1 << 20
MAX_ROW_BYTES = 64 << 20  # twice the longest header
EXACT_SINCE = 3  # this version of pandas reads every float exactly without being asked
PROOF_BYTES = 64
SMALL_BYTES = 32 << 10  # up to here the csv module is faster than pandas, whose import alone takes 0.4 s
_NOTHING = float("nan")
_RECORDED_BITS = 0x7FF8_0000_0000_0001  # a NaN as any other to whoever does not ask for its bits
_RECORDED = struct.pack("<Q", _RECORDED_BITS)
RECORDED_NAN: float = struct.unpack("<d", _RECORDED)[0]


def read_columns(path: str | os.PathLike[str], names: Sequence[str]) -> Columns:
    """Columns of a table as float64 arrays of equal length, shape (rows,).

    Empty cells and text are NaN, True and False 1 and 0; a NaN that was recorded has bits of its own,
    see `recorded_nan`. Names that the table has not are left out.

    Raises:
        BrokenFileError: it is not a table.
        OSError: it cannot be opened.
    """
    return read_part(path, names).columns


@dataclass(frozen=True, slots=True)
class TablePart:
    """Columns of some rows of a table.

    Attributes:
        columns: as `read_columns` gives them.
        start: the byte at which its first row begins.
        end: the byte at which the next row begins.
        proof: the last bytes before that.
        inode: of the file.
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

    Where the file is another one than that part was read from, or has other bytes before that part's end,
    all rows are given: `start` is not the end of that part, or `inode` is another one.
    """
    found = _read_cells(path, names, after)
    return replace(found, columns={name: _as_floats(cells) for name, cells in found.columns.items()})


def read_all(
    path: str | os.PathLike[str],
) -> tuple[Columns, dict[str, list[str | None]]]:
    """All columns as `read_columns` gives them; and the texts of those that hold any, None for a number."""
    cells = _read_cells(path, None).columns
    texts = {name: list(map(_text, column)) for name, column in cells.items() if _may_hold_text(column)}
    columns = {name: _as_floats(column) for name, column in cells.items()}
    return columns, {name: column for name, column in texts.items() if any(column)}


def read_numbers(path: str | os.PathLike[str]) -> dict[str, list[float]]:
    """The numbers of all columns, in order, as lists without gaps and NaN.

    Needs neither numpy nor pandas.

    Raises:
        BrokenFileError: it is not a table.
        OSError: it cannot be opened.
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
    """See `read_part`; cells as they were read, an array or a list a column. Without names all columns."""
    with open_plain(path) as file:
        size = written_bytes(file)
        inode = os.fstat(file.fileno()).st_ino
        head = file.readline(min(size, MAX_HEADER_BYTES))
        header = parse_header(path, head) if head.endswith(b"\n") else ()
        places = {name: place for place, name in reversed(list(enumerate(header)))}
        wanted = {name: places[name] for name in (header if names is None else names) if name in places}
        start = len(head)
        if after is not None and inode == after.inode and size >= after.end:
            start = after.end if _before(file, after.end) == after.proof else start
        body = _Part(file, start, _end_of_lines(file, start, size))
        proof = _before(file, body.end)
        if not body.left or not wanted:
            return TablePart(dict.fromkeys(wanted, ()), start, body.end, proof, inode)
        parsed = None
        if body.left > SMALL_BYTES:
            parsed = _parse_body(io.BufferedReader(body, BLOCK_BYTES), header, sorted(wanted.values()))
        if body.longest > MAX_ROW_BYTES:
            raise BrokenFileError(os.fspath(path), f"it has a row of more than {MAX_ROW_BYTES >> 20} MiB")
        if parsed is None:
            body.rewind()
            rows = split_block(path, body.read(body.left))
    if parsed is None:
        parsed = {
            place: [row[place] if place < len(row) else "" for row in rows] for place in wanted.values()
        }
    return TablePart({name: parsed[place] for name, place in wanted.items()}, start, body.end, proof, inode)


def _before(file: BinaryIO, end: int) -> bytes:
    """The last bytes before a place; rows hold the time of their writing, so they tell contents apart."""
    file.seek(max(end - PROOF_BYTES, 0))
    return file.read(min(end, PROOF_BYTES))


class _Part(io.RawIOBase):
    """Bytes of a file from one offset to another; read in blocks, so that no table is held as a whole."""

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        self._file, self._start, self.end = file, start, end
        self.rewind()

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return self.end - self._at

    def rewind(self) -> None:
        """Begin anew."""
        self._at = self._start
        self._row = 0  # bytes of the last row, as far as it was read
        self.longest = 0  # of all rows that reach over a block's end

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - whatever holds bytes
        """See `io.RawIOBase`."""
        if self.longest > MAX_ROW_BYTES:
            message = "a row is too long"  # the parser would hold all of it, several times
            raise ValueError(message)
        self._file.seek(self._at)
        block = self._file.read(min(len(buffer), self.left))
        first = block.find(b"\n")
        self.longest = max(self.longest, self._row + (len(block) if first < 0 else first))
        self._row = self._row + len(block) if first < 0 else len(block) - block.rfind(b"\n") - 1
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)


def _end_of_lines(file: BinaryIO, start: int, size: int) -> int:
    """The offset after the last newline of a file's first `size` bytes; `start` without one behind it.

    Raises:
        BrokenFileError: what follows it is longer than any row.
    """
    for end in range(size, max(start, size - MAX_ROW_BYTES), -BLOCK_BYTES):
        begin = max(start, end - BLOCK_BYTES)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
    if size - start > MAX_ROW_BYTES:
        raise BrokenFileError(file.name, f"it ends in a row of more than {MAX_ROW_BYTES >> 20} MiB")
    return start


def _parse_body(body: io.BufferedReader, columns: Sequence[str], places: list[int]) -> dict[int, Any] | None:
    """The columns by place, read by pandas; None without it, and when a row has too many cells."""
    try:
        import pandas as pd
    except ModuleNotFoundError:  # an extra; the csv module reads the same, more slowly
        return None
    exact: dict[str, Any] = (
        {} if int(pd.__version__.split(".")[0]) >= EXACT_SINCE else {"float_precision": "round_trip"}
    )
    try:
        frame = pd.read_csv(
            body,
            header=None,
            names=list(range(len(columns))),
            usecols=places,
            index_col=False,
            encoding_errors="replace",
            skip_blank_lines=False,
            keep_default_na=False,
            na_values=[""],
            **exact,
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
    """Which values of a column were recorded as NaN; the others that are NaN were not recorded at all."""
    import numpy as np

    found: NDArray[np.bool_] = np.ascontiguousarray(column).view(np.uint64) == _RECORDED_BITS
    return found


def warn_broken(error: Exception) -> None:
    """Say which file could not be read, once per place."""
    warnings.warn(str(error), stacklevel=3)
