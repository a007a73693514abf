"""Messages for SQL errors."""

from __future__ import annotations

import re

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.text.spelling import hint as spelling_hint
from rla_client.database.lake.sql_views import VIEWS

MEMORY_BYTES = 4 << 30  # of a query, which writes nothing to disk; on a small machine half of the free memory


def told(error: Exception, memory: int = MEMORY_BYTES) -> DatabaseError | ArgumentError:
    """The error as one of ours, with a message for users."""
    import duckdb
    import pyarrow as pa

    text = str(error).partition("\n\nLINE")[0].removeprefix("Binder Error: ").removeprefix("Catalog Error: ")
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "std::bad_alloc" in text:
        return too_much_memory(memory)
    if isinstance(error, duckdb.PermissionException):
        return ArgumentError("a query reads the views of this database and no other files\nhint: " + _views())
    if isinstance(error, duckdb.CatalogException):
        name = re.search(r"with name \"?([\w.]+)", text)
        advice = spelling_hint(name[1], list(VIEWS)) if name else ""
        return ArgumentError(f"{text.splitlines()[0]}\nhint: {advice or _views()}")
    if isinstance(error, pa.ArrowNotImplementedError):
        return ArgumentError(f"{error}\nhint: CAST the column to VARCHAR")
    if isinstance(
        error,
        duckdb.BinderException
        | duckdb.ParserException
        | duckdb.ConversionException
        | duckdb.InvalidInputException,
    ):
        return ArgumentError(text)
    return DatabaseError(f"{text}\nhint: rla lake verify tells whether the lake is damaged")


def too_much_memory(memory: int = MEMORY_BYTES) -> DatabaseError:
    """The error of a query that needs more memory than it may have."""
    size = f"{memory / (1 << 30):.3g} GB"
    return DatabaseError(f"the query needs more than {size}\nhint: ask for fewer columns, or aggregate")


def _views() -> str:
    return f"the views are {', '.join(VIEWS)}"
