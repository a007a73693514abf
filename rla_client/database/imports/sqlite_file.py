"""Rows of a foreign SQLite file.

The file and its folder are not written to: a database with a journal beside it is copied first. Only real
tables are read, because a view or a virtual table runs code of the file's author.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, sqlite_address
from rla_client.database.imports.item_writer import copy

MAX_CELL_BYTES = 64 << 20  # the largest cells hold a record of one step, or a configuration
_SQLITE = b"SQLite format 3\0"
_SQLITE_LENGTH = 0  # SQLITE_LIMIT_LENGTH


@contextmanager
def sqlite_store(path: Path) -> Iterator[sqlite3.Connection]:
    """The database at `path`; its rows are dicts.

    Raises:
        BrokenFileError: the file is no SQLite database.
        OSError: it cannot be opened.
    """
    with open_plain(path, links=True) as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            raise BrokenFileError(os.fspath(path), "it is not an SQLite database")
    with ExitStack() as held:
        source, mode = path.absolute(), "mode=ro&immutable=1"
        journals = [Path(f"{source}-{kind}") for kind in ("wal", "journal")]
        if any(journal.exists() for journal in journals):
            copies = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="rla-import-")))
            for one in (source, *filter(Path.exists, journals)):
                copy(one, copies / one.name, links=True)
            source, mode = copies / source.name, "mode=rw"
        connection = sqlite3.connect(sqlite_address(source, mode), uri=True)
        held.callback(connection.close)
        if hasattr(connection, "setlimit"):
            connection.setlimit(_SQLITE_LENGTH, MAX_CELL_BYTES)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.row_factory = lambda cursor, row: {
            name[0]: value for name, value in zip(cursor.description, row, strict=True)
        }
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
        except sqlite3.Error as error:
            raise BrokenFileError(os.fspath(path), str(error)) from error
        yield connection


def sqlite_rows(
    connection: sqlite3.Connection, table: str, where: str = "", value: object = None, order: str = "rowid"
) -> Iterator[dict[str, Any]]:
    """All columns of a table's rows.

    Args:
        connection: from `sqlite_store`.
        table: the table; a constant, as it is not escaped.
        where: only rows with `value` in this column (a constant); empty: all rows.
        value: see `where`.
        order: columns to sort by (a constant).

    Raises:
        ValueError: there is no such table, or it is a view or a virtual table.
        sqlite3.Error: the file is broken.
    """
    found = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if found is None or found["type"] != "table" or "VIRTUAL" in str(found["sql"]).upper().split()[:2]:
        message = f"it has no table {table}"
        raise ValueError(message)
    condition, values = (f'WHERE "{where}" = ?', (value,)) if where else ("", ())
    yield from connection.execute(f'SELECT * FROM "{table}" {condition} ORDER BY {order}', values)  # noqa: S608
