"""Rows of a foreign Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError, extra
from rla_client.contract.filesystem.plain_files import open_plain

PARQUET_ROWS = 10_000


def parquet_rows(
    path: Path,
    what: str,
    columns: list[str] | None = None,
    filters: list[tuple[str, str, object]] | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file as Python objects, converted in batches.

    Args:
        path: the file.
        what: the feature that needs pyarrow, for the message.
        columns: only these columns.
        filters: only rows that pass these filters of pyarrow.

    Raises:
        BrokenFileError: it is no Parquet file, or lacks a chosen column.
        MissingExtraError: pyarrow is not installed.
    """
    with extra("parquet", what):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with open_plain(path, links=True) as file:
        try:
            found = pq.read_table(file, columns=columns, filters=filters)
            for batch in found.to_batches(max_chunksize=PARQUET_ROWS):
                yield from batch.to_pylist()
        except pa.ArrowException as error:
            raise BrokenFileError(os.fspath(path), str(error)) from error
