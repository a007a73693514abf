"""The rows of a progress.csv as cells.

The files are append-only tables with a header. Files of the original quote nothing; ours quote text properly.
"""

from __future__ import annotations

import codecs
import csv
import os

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.text.csv_lines import split_rows

MAX_HEADER_BYTES = 32 << 20  # 65,536 keys (the client's limit) of 500 bytes
MAX_COLUMNS = 1 << 18  # commas in a header: 65,536 keys with some commas in them
TRUTH_VALUES = {"True": 1.0, "False": 0.0}


def parse_header(path: str | os.PathLike[str], header: bytes) -> tuple[str, ...]:
    """Column names of a header line.

    Raises:
        BrokenFileError: it is not a header.
    """
    if header.count(b",") > MAX_COLUMNS:
        raise BrokenFileError(os.fspath(path), f"it has more than {MAX_COLUMNS} columns")
    rows = split_block(path, header.removeprefix(codecs.BOM_UTF8))  # a spreadsheet's
    return tuple(rows[0]) if rows else ()


def split_block(path: str | os.PathLike[str], block: bytes) -> list[list[str]]:
    """Cells of whole lines; BrokenFileError where they are no CSV."""
    text = block.decode("utf-8", "replace")
    if "\0" in text:
        raise with_nul_bytes(path)
    try:
        return split_rows(text)
    except csv.Error as error:
        raise BrokenFileError(os.fspath(path), f"no CSV ({error})") from error


def with_nul_bytes(path: str | os.PathLike[str]) -> BrokenFileError:
    """The error for a table with NUL bytes."""
    return BrokenFileError(os.fspath(path), "it holds NUL bytes, so it is not CSV")
