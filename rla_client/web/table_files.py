"""Reader of table files: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from rla_client.contract.errors import ArgumentError
from rla_client.web.readable_text import readable

ENDINGS = frozenset({"csv", "tsv", "jsonl", "ndjson", "parquet"})  # of files that are tables
MAX_BYTES = 32 << 20  # read of a file
MAX_ROWS = 200_000
MAX_COLUMNS = 500
BATCH_ROWS = 1000
Row = Sequence[Any]


def read_table(path: str, file: BinaryIO) -> tuple[list[str], list[Row], bool]:
    """The column names, the rows, and whether the file has more rows than were read.

    Raises:
        ArgumentError: the file is no table, or damaged.
    """
    suffix = path.rpartition(".")[2].lower()
    if suffix == "parquet":
        return _read_parquet(file)
    if suffix not in ENDINGS:
        raise ArgumentError(f"{path[:200]} is no table that is shown here: CSV, TSV, JSON lines, Parquet")
    data = file.read(MAX_BYTES + 1)
    cut = len(data) > MAX_BYTES
    if cut:
        data = data[: data.rfind(b"\n", 0, MAX_BYTES) + 1]
    text = readable(data.replace(b"\r\n", b"\n"))
    if suffix in {"csv", "tsv"}:
        lines = _csv_rows(text, "\t" if suffix == "tsv" else ",")
        columns = [str(cell) for cell in next(lines, [])][:MAX_COLUMNS]
        rows = list(islice(lines, MAX_ROWS + 1))
    else:
        objects = list(islice(_objects(text), MAX_ROWS + 1))
        columns = list(dict.fromkeys(str(name) for one in objects for name in one))[:MAX_COLUMNS]
        rows = [[one.get(name) for name in columns] for one in objects]
    width = len(columns)
    whole: list[Row] = [[*row[:width], *[None] * (width - len(row))] for row in rows[:MAX_ROWS]]
    return columns, whole, cut or len(rows) > MAX_ROWS


def _csv_rows(text: str, delimiter: str) -> Iterator[list[Any]]:
    limit = csv.field_size_limit(MAX_BYTES)
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    except csv.Error as error:
        raise ArgumentError(f"this is no CSV: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects of JSON lines; a line that is no object becomes {"line": its value}."""
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = line
        yield found if isinstance(found, dict) else {"line": found}


def _read_parquet(file: BinaryIO) -> tuple[list[str], list[Row], bool]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional library
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise ArgumentError("a Parquet file needs pyarrow to be shown: pip install pyarrow") from error
    try:
        source = pq.ParquetFile(file)
        columns = [str(name) for name in source.schema_arrow.names][:MAX_COLUMNS]
        rows: list[Row] = []
        for batch in source.iter_batches(BATCH_ROWS):
            values = [batch.column(place).to_pylist() for place in range(len(columns))]
            rows.extend(zip(*values, strict=True))
            if len(rows) > MAX_ROWS or batch.nbytes > MAX_BYTES:
                break
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArgumentError(f"this Parquet file cannot be read: {str(error)[:300]}") from error
    return columns, rows[:MAX_ROWS], source.metadata.num_rows > min(len(rows), MAX_ROWS)
