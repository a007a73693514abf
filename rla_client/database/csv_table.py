"""Reading `progress.csv`: whole columns fast, the last row without the rest, and points for a small chart.

The files are append-only tables with a header. Only bytes up to the last newline count: what
follows is a row that is being written, or one torn by a crash. Files of the original quote
nothing; ours quote text properly. Whole columns come through pandas (12 ms for 4 MB), and by
the csv module where a row is too long; what a command shows at once needs no pandas. Rows that
are too short or too long, as the original's rewriting of headers left them, keep the cells that
have a column.

Of a chain (see `tree`) the rows of all its items that count make one table. The points of a chart are read
without pandas or numpy; of a large table they are a sample, so that a look stays quick, and the rows that
count are told by time-step alone.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import os
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rla_client.contract.errors import BrokenFileError, extra
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.layout import LOG, TIME_STEP
from rla_client.contract.text.csv_lines import TOO_LONG, split_rows
from rla_client.database.tree import Link, chain_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = dict[str, NDArray[np.float64]]

PROGRESS_FILE = "progress.csv"
FULL_NAMES = "full_names"  # of a long frame's attrs: metric or x as asked for -> the column's name
Points = list[tuple[float, float]]
FIRST_TAIL_BYTES = 16 << 10  # some rows of 20 metrics; doubled until every column has a value
MAX_TAIL_BYTES = 4 << 20  # a column that is empty for longer is looked up by whoever needs it
MAX_COUNTED_BYTES = 16 << 20  # in a longer table an unclosed quote far from its end is not looked for
MAX_HEADER_BYTES = 32 << 20  # 65,536 keys (the client's limit) of 500 bytes
BLOCK_BYTES = 1 << 20
MAX_ROW_BYTES = 64 << 20  # twice the longest header
MAX_COLUMNS = 1 << 18  # commas in a header: 65,536 keys with some commas in them
EXACT_SINCE = 3  # this version of pandas reads every float exactly without being asked
MAX_SAMPLED_WHOLE_BYTES = 1 << 20  # the csv module reads it in about 10 ms
PROOF_BYTES = 64
SMALL_BYTES = 32 << 10  # up to here the csv module is faster than pandas, whose import alone takes 0.4 s
UNCLOSED = "unexpected end of data"  # the csv module's words
_WORDS = {"True": 1.0, "False": 0.0}
_NOTHING = float("nan")
_RECORDED_BITS = 0x7FF8_0000_0000_0001  # a NaN as any other to whoever does not ask for its bits
_RECORDED = struct.pack("<Q", _RECORDED_BITS)
RECORDED_NAN: float = struct.unpack("<d", _RECORDED)[0]


@dataclass(frozen=True, slots=True)
class Tail:
    """What the end of a table says.

    Attributes:
        columns: the header.
        last: last value of every column that has one near the end; numbers as numbers.
        rows_seen: whether there is at least one whole row.
        torn_bytes: length of an unfinished row at the end.
        quoted_lines: line ends behind a quote that is never closed: the rows after it are one cell.
    """

    columns: tuple[str, ...]
    last: dict[str, object]
    rows_seen: bool
    torn_bytes: int
    quoted_lines: int = 0


def read_tail(path: str | os.PathLike[str], *, all_quotes: bool = False) -> Tail:
    """Header and last values of a table.

    Args:
        path: of the table.
        all_quotes: look for an unclosed quote in all of it, where it has no more than `MAX_COUNTED_BYTES`.

    Raises:
        BrokenFileError: it is not a table.
        OSError: it cannot be opened.
    """
    with open_plain(path) as file:
        size = written_bytes(file)
        header = file.readline(MAX_HEADER_BYTES)
        if not header.endswith(b"\n"):
            if b"\0" in header:
                raise _with_nul_bytes(path)
            return Tail((), {}, rows_seen=False, torn_bytes=size)
        columns = parse_header(path, header)
        length = FIRST_TAIL_BYTES
        while True:
            start = max(len(header), size - length)
            file.seek(start)
            block = file.read(size - start)
            whole = block.rfind(b"\n") + 1
            if b'"' in block and len(header) < start and size - len(header) <= MAX_TAIL_BYTES:
                file.seek(len(header))  # a quoted newline may hide where rows begin
                start, block = len(header), file.read(size - len(header))
                whole = block.rfind(b"\n") + 1
            skip = 0 if start == len(header) else block.find(b"\n") + 1
            last = _last_values(path, columns, block[skip:whole])
            complete = len(last) == len(columns)
            if complete or start == len(header) or length >= MAX_TAIL_BYTES:
                if start == len(header):
                    quoted = quoted_lines(header + block[skip:whole])
                else:
                    quoted = _all_quoted_lines(file, start + whole) if all_quotes else 0
                return Tail(columns, last, whole > skip, len(block) - whole, quoted)
            length *= 4


def _all_quoted_lines(file: BinaryIO, end: int) -> int:
    """As `quoted_lines` of a file's first `end` bytes, which are held as a whole only where it is not 0."""
    if end > MAX_COUNTED_BYTES:
        return 0
    file.seek(0)
    quotes = sum(file.read(min(BLOCK_BYTES, end - at)).count(b'"') for at in range(0, end, BLOCK_BYTES))
    if quotes % 2 == 0:
        return 0
    file.seek(0)
    return quoted_lines(file.read(end))


def quoted_lines(content: bytes, delimiter: str = ",") -> int:
    """Line ends between a quote that is not closed and the end; 0 where all are."""
    if content.count(b'"') % 2 == 0:
        return 0
    text = content.decode("utf-8", "replace").replace("\0", "")
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    whole = 0
    try:
        for _ in reader:
            whole = reader.line_num
    except csv.Error as error:
        if UNCLOSED in str(error) or TOO_LONG in str(error):
            return text.count("\n") - whole - 1
    return 0


def parse_header(path: str | os.PathLike[str], header: bytes) -> tuple[str, ...]:
    """Column names of a header line.

    Raises:
        BrokenFileError: it is not a header.
    """
    if header.count(b",") > MAX_COLUMNS:
        raise BrokenFileError(os.fspath(path), f"it has more than {MAX_COLUMNS} columns")
    rows = _rows(path, header.removeprefix(codecs.BOM_UTF8))  # a spreadsheet's
    return tuple(rows[0]) if rows else ()


def _rows(path: str | os.PathLike[str], block: bytes) -> list[list[str]]:
    text = block.decode("utf-8", "replace")
    if "\0" in text:
        raise _with_nul_bytes(path)
    try:
        return split_rows(text)
    except csv.Error as error:
        raise BrokenFileError(os.fspath(path), f"no CSV ({error})") from error


def _with_nul_bytes(path: str | os.PathLike[str]) -> BrokenFileError:
    return BrokenFileError(os.fspath(path), "it holds NUL bytes, so it is not CSV")


def _last_values(path: str | os.PathLike[str], columns: Sequence[str], block: bytes) -> dict[str, object]:
    last: dict[str, object] = {}
    missing = set(columns)
    for row in reversed(_rows(path, block)):
        for name, cell in zip(columns, row, strict=False):
            if name in missing and cell != "":
                last[name] = to_value(cell)
                missing.discard(name)
        if not missing:
            break
    return {name: last[name] for name in columns if name in last}


def to_value(cell: str) -> object:
    """A cell as number or bool where it is one, else as text."""
    if cell in _WORDS:
        return cell == "True"
    if "_" in cell:
        return cell
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


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
            rows = _rows(path, body.read(body.left))
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
        return _WORDS.get(str(cell).strip(), _NOTHING)
    return RECORDED_NAN if value != value and isinstance(cell, str) else value  # noqa: PLR0124 - NaN


def recorded_nan(column: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values of a column were recorded as NaN; the others that are NaN were not recorded at all."""
    import numpy as np

    found: NDArray[np.bool_] = np.ascontiguousarray(column).view(np.uint64) == _RECORDED_BITS
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """Some columns of a table, or of rows spread over it.

    Attributes:
        columns: name → a value for each row, None where no number was recorded.
        rows: how many rows these are.
        whole: whether they are all rows.
    """

    columns: dict[str, list[float | None]]
    rows: int
    whole: bool


def sample_rows(path: str | os.PathLike[str], names: Sequence[str], points: int = 400) -> Sample:
    """Some columns for a small picture: all rows of a small file, `points` rows spread over a large one.

    Needs neither numpy nor pandas.

    Raises:
        BrokenFileError: it is not a table.
        OSError: it cannot be opened.
    """
    with open_plain(path) as file:
        size = written_bytes(file)
        header = file.readline(MAX_HEADER_BYTES)
        columns = parse_header(path, header)
        whole = size <= MAX_SAMPLED_WHOLE_BYTES
        if whole:
            body = file.read(size)
            block = body[: body.rfind(b"\n") + 1]
        else:
            block = b"".join(_lines_at(file, len(header), size, points))
    wanted = {name: columns.index(name) for name in names if name in columns}
    rows = [row for row in _rows(path, block) if row]
    found = {
        name: [_recorded(row[place]) if place < len(row) else None for row in rows]
        for name, place in wanted.items()
    }
    return Sample(found, len(rows), whole)


def _recorded(cell: str) -> float | None:
    """The number in a cell, NaN if that was recorded; None for text and nothing."""
    try:
        return float(cell)
    except ValueError:
        return _WORDS.get(cell.strip())


def _lines_at(file: BinaryIO, start: int, size: int, points: int) -> Iterator[bytes]:
    last = -1
    for point in range(points):
        file.seek(start + (size - start) * point // points)
        if point:
            file.readline()
        here = file.tell()
        line = file.readline()
        if here != last and line.endswith(b"\n") and b'"' not in line:
            yield line
        last = here


def warn_broken(error: Exception) -> None:
    """Say which file could not be read, once per place."""
    warnings.warn(str(error), stacklevel=3)


def chain_columns(
    chain: Sequence[Link], read: Callable[[str, Sequence[str]], Columns], names: Sequence[str]
) -> Columns:
    """Columns of a chain's rows as of one run's.

    Args:
        chain: see `chain_of`.
        read: columns of one item, by index and names; names that it has not are left out.
        names: columns.

    Returns:
        Name → values, shape (rows,), NaN where an item has no such column.

    Raises:
        What `read` raises; items of a chain without a table have no rows.
    """
    with extra("read", "reading a run that continues another"):
        import numpy as np

    parts = []
    for link in chain:
        try:
            part = read(link.index, list(dict.fromkeys([*names, TIME_STEP])))
        except FileNotFoundError:
            if len(chain) == 1:
                raise
            continue
        parts.append(_cut(part, link))
    lengths = [max((len(column) for column in part.values()), default=0) for part in parts]
    found = {}
    for name in names:
        if any(name in part for part in parts):
            columns = [
                part[name] if name in part else np.full(length, np.nan)
                for part, length in zip(parts, lengths, strict=True)
            ]
            found[name] = np.concatenate(columns)
    return found


def read_chain(chain: Sequence[Link], table_folder: str, names: Sequence[str]) -> Columns:
    """Columns of a chain's rows, read from the files of its items; see `chain_columns`."""
    return chain_columns(
        chain, lambda index, some: read_columns(f"{table_folder}/{index}/{PROGRESS_FILE}", some), names
    )


def _cut(part: Columns, link: Link) -> Columns:
    if link.rows is not None:
        return {name: column[: link.rows] for name, column in part.items()}
    if link.time_step is not None and TIME_STEP in part:
        keep = part[TIME_STEP] <= link.time_step
        return {name: column[keep] for name, column in part.items()}
    return part


def chain_names(chain: Sequence[Link], table_folder: str) -> list[str]:
    """Columns of a chain's tables, those of the last item first.

    Raises:
        BrokenFileError: one is not a table.
        OSError: that of the last item cannot be opened.
    """
    names: list[str] = []
    for link in reversed(chain):
        try:
            names += read_tail(f"{table_folder}/{link.index}/{PROGRESS_FILE}").columns
        except FileNotFoundError:
            if len(chain) == 1:
                raise
    return list(dict.fromkeys(names))


def chart_points(
    data_root: Path, table: str, index: str, choose: Sequence[str]
) -> tuple[dict[str, Points], bool]:
    """Points (x, y) of some columns of a run, from the beginning of its chain; x is the time-step.

    Args:
        data_root: the database.
        table: task table.
        index: the run, or the last item of a chain that is wanted.
        choose: columns.

    Returns:
        Points by column, those that were recorded as NaN or infinite too, without columns that
        there are not; and whether tables were sampled. Without a time-step x is the row.

    Raises:
        BrokenFileError: an item's table is none.
        OSError: it cannot be opened; items of a chain without a table have no points.
    """
    chain = chain_of(data_root, table, index)
    found: dict[str, Points] = {}
    sampled = False
    before = 0
    for link in chain:
        try:
            sample = sample_rows(
                f"{data_root}/{LOG}/{table}/{link.index}/{PROGRESS_FILE}", [TIME_STEP, *choose]
            )
        except FileNotFoundError:
            if len(chain) == 1:
                raise
            continue
        sampled = sampled or not sample.whole
        keep = _counting(sample, link)
        steps = sample.columns.get(TIME_STEP)
        for name in choose:
            cells = sample.columns.get(name)
            if cells is None:
                continue
            points = found.setdefault(name, [])
            for row in keep:
                x, y = steps[row] if steps is not None else float(before + row), cells[row]
                if x is not None and y is not None:
                    points.append((x, y))
        before += len(keep)
    return found, sampled


def chart_names(data_root: Path, table: str, index: str) -> list[str]:
    """Columns of a run's table, of a chain those of all its items."""
    return chain_names(chain_of(data_root, table, index), f"{data_root}/{LOG}/{table}")


def _counting(sample: Sample, link: Link) -> list[int]:
    """The rows of an item that count in its chain."""
    rows = list(range(sample.rows))
    steps = sample.columns.get(TIME_STEP)
    if link.rows is not None and sample.whole:
        return rows[: link.rows]
    if link.time_step is not None and steps is not None:
        return [row for row in rows if (step := steps[row]) is not None and step <= link.time_step]
    return rows
