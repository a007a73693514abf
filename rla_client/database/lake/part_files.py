"""Parquet files of a part.

    runs      a row a run: the row of the catalogue, its signature, that of its samples (`samples`), and
              `place`, its number in this part
    params    run, name, value (text), number (null where it is none)
    last      run, metric, value, text: the last value of each column of progress.csv
    rows      a row for each run and column of progress.csv: lists `step`, `value`, `text`, an entry a row
    system    the same of system.csv; `step` is the time
    files     run, kind, path, bytes, changed: every file of the run when the part was written
    samples   run and the index of its samples, a sample a row, see `sample_table`

`value` is null where a cell was empty or text, NaN where NaN was recorded; `run` is `<table>/<index>`. `rows`
is ordered by metric and run, in row groups of some 100 runs, so that one metric is read alone.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.database.catalogue import COLUMNS
from rla_client.database.lake.manifest import LAKE, LakePart

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


MAX_FILE_BYTES = 1 << 30  # of one file, compressed or not; ten times what ours have
FOOTER_END = 8  # bytes: the footer's length, "PAR1"
MAX_FOOTER_BYTES = 64 << 20
SAMPLE_TEXTS = ("id", "name", "role", "group", "prompt", "completion")  # each is a column
SAMPLE_NUMBERS = ("step", "time", "reward")
_NUMBERS = frozenset({"opened", "updated", "time_step", "duration_s"})


@contextmanager
def open_file(data_root: Path, part: LakePart, name: str) -> Iterator[BinaryIO]:
    """One file of a part.

    Raises:
        BrokenFileError: the file differs from what was written.
        OSError: the file cannot be opened.
    """
    with (
        held_folder(data_root, f"{LAKE}/{part.name}") as folder,
        open_plain(folder / f"{name}.parquet") as file,
    ):
        size = os.fstat(file.fileno()).st_size
        if size != part.sizes[name] or size > MAX_FILE_BYTES:
            raise BrokenFileError(
                f"{LAKE}/{part.name}/{name}.parquet", "it has another size than was written"
            )
        if footer_check(file, size) != part.footers[name]:
            raise BrokenFileError(f"{LAKE}/{part.name}/{name}.parquet", "its footer is damaged")
        yield file


def footer_check(file: BinaryIO, size: int) -> int:
    """Checksum of a Parquet file's footer; its length precedes the last four bytes."""
    file.seek(max(size - FOOTER_END, 0))
    length = int.from_bytes(file.read(FOOTER_END)[:4], "little") + FOOTER_END
    file.seek(max(size - min(length, MAX_FOOTER_BYTES), 0))
    check = zlib.crc32(file.read(min(length, MAX_FOOTER_BYTES)))
    file.seek(0)
    return check


def plain_path(data_root: Path, part: LakePart, name: str) -> str:
    """Path of a part's file, for programs that open files themselves, after the checks of `open_file`.

    Raises:
        BrokenFileError, OSError: as `open_file`.
    """
    with open_file(data_root, part, name):
        return f"{data_root}/{LAKE}/{part.name}/{name}.parquet"


@contextmanager
def parquet(data_root: Path, part: LakePart, name: str) -> Iterator[pq.ParquetFile]:
    """An open file of a part with checked columns and sizes; errors of reading become BrokenFileError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = f"{part.name}/{name}.parquet"
    with open_file(data_root, part, name) as file:
        try:
            found = pq.ParquetFile(file, page_checksum_verification=True)
            if not found.schema_arrow.equals(schemas()[name]):
                raise BrokenFileError(where, "it has other columns than the lake's")
            groups = range(found.num_row_groups)
            whole = sum(found.metadata.row_group(group).total_byte_size for group in groups)
            if whole > MAX_FILE_BYTES or (name == "runs" and found.metadata.num_rows != part.runs):
                raise BrokenFileError(where, "it holds more than was written")
            yield found
        except (pa.ArrowException, OSError, ValueError) as error:  # pyarrow reports a damaged page as OSError
            raise BrokenFileError(where, f"no valid Parquet ({error})") from error


def read_table(data_root: Path, part: LakePart, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A part's file, or some columns of it.

    Raises:
        BrokenFileError: the file differs from what was written.
        OSError: the file cannot be read.
    """
    with parquet(data_root, part, name) as file:
        return file.read(columns=columns)


def check_file(data_root: Path, part: LakePart, name: str) -> None:
    """Check that a part's file can be opened and has the right columns.

    Raises:
        BrokenFileError, OSError: it cannot be opened, or has others.
    """
    with parquet(data_root, part, name):
        pass


def schemas() -> dict[str, pa.Schema]:
    """File name → its columns."""
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    curves = [
        ("metric", text),
        ("step", pa.list_(number)),
        ("value", pa.list_(number)),
        ("text", pa.list_(text)),
    ]
    fields = {
        "runs": [
            ("signature", text),
            *((name, number if name in _NUMBERS else text) for name in COLUMNS),
            ("samples", text),
        ],
        "params": [("name", text), ("value", text), ("number", number)],
        "last": [("metric", text), ("value", number), ("text", text)],
        "rows": curves,
        "system": curves,
        "files": [("kind", text), ("path", text), ("bytes", pa.int64()), ("changed", number)],
        "samples": [
            *((name, text) for name in SAMPLE_TEXTS),
            *((name, number) for name in SAMPLE_NUMBERS),
            ("numbers", pa.map_(text, number)),
            ("texts", pa.map_(text, text)),
        ],
    }
    return {name: pa.schema([("place", pa.int32()), ("run", text), *found]) for name, found in fields.items()}
