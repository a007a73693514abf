"""Result of `rla sql`.

It is printed as a table on a terminal and in batches elsewhere, or written to a Parquet file.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.cli.output import print_done, print_rows, say_aside
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.text.csv_lines import rows_text
from rla_client.database.text.machine_text import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb
    import pyarrow as pa

    from rla_client.database.lake.sql_query import Clock


TERMINAL_LIMIT = 100  # rows on a terminal; pipes and files get all
BATCH = 10_000  # rows at a time into a file or a pipe
MAX_TABLE_ROWS = 100_000  # all rows of an aligned table are in memory


def show_result(
    result: duckdb.DuckDBPyConnection,
    clock: Clock,
    parquet: Path | None,
    limit: int | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print a result as text, JSON or CSV, or write it to a file."""
    from rla_client.database.lake.sql_query import fetched

    if parquet is not None:
        count = _write_parquet(result, clock, parquet)
        print_done({"file": str(parquet), "rows": count}, f"{parquet}: {count} rows", as_json=as_json)
        return
    machine = as_json or as_csv
    if limit is None:
        limit = TERMINAL_LIMIT if sys.stdout.isatty() and not machine else 0
    names = [column[0] for column in result.description or ()]
    if as_csv:
        sys.stdout.write(rows_text([names]))
        for batch in _batches(result, clock, limit):
            sys.stdout.write(rows_text(batch))
        return
    if as_json:
        _print_json(result, clock, _distinct(names), limit)
        return
    rows = fetched(result, (limit or MAX_TABLE_ROWS) + 1, clock)
    if not limit and len(rows) > MAX_TABLE_ROWS:
        raise ArgumentError(
            f"the query has more than {MAX_TABLE_ROWS} rows, too many for a table\n"
            "hint: --csv, --json and --parquet FILE take all of them; -n 1000 shows the first"
        )
    print_rows(names, [_cells(row) for row in rows[: limit or None]], as_json=False, as_csv=False)
    if limit and len(rows) > limit:
        _say_more(limit)


def _say_more(limit: int) -> None:
    say_aside(f"(more than {limit} rows; --limit 0 shows all)")


def _print_json(result: duckdb.DuckDBPyConnection, clock: Clock, names: list[str], limit: int) -> None:
    """As `print_rows`, in batches, because all rows may not fit into memory."""
    from decimal import Decimal

    ahead = "["
    for rows in _batches(result, clock, limit):
        numbers = ([float(cell) if isinstance(cell, Decimal) else cell for cell in row] for row in rows)
        text = json_text([dict(zip(names, row, strict=True)) for row in numbers])
        sys.stdout.write(ahead + text.removeprefix("[").removesuffix("\n]"))
        ahead = ","
    sys.stdout.write("[]\n" if ahead == "[" else "\n]\n")


def _batches(result: duckdb.DuckDBPyConnection, clock: Clock, limit: int) -> Iterator[list[list[object]]]:
    """Batches of at most `limit` rows of a result; all rows for 0."""
    from rla_client.database.lake.sql_query import fetched

    left = limit or sys.maxsize
    while left and (rows := fetched(result, min(BATCH, left), clock)):
        yield [_cells(row) for row in rows]
        left -= len(rows)
    if not left and fetched(result, 1, clock):
        _say_more(limit)


def _cells(row: tuple[Any, ...]) -> list[object]:
    """Values as the other commands print them."""
    return [" ".join(map(str, value)) if isinstance(value, list) else value for value in row]


def _distinct(names: Sequence[str]) -> list[str]:
    """Distinct names of columns: the second `value` becomes `value_1`, as in DuckDB's `.df()`."""
    found: dict[str, None] = {}
    for name in names:
        free = (one for one in (name, *(f"{name}_{n}" for n in range(1, len(names)))) if one not in found)
        found[next(free)] = None
    return [*found]


def _write_parquet(result: duckdb.DuckDBPyConnection, clock: Clock, path: Path) -> int:
    """Write all rows atomically, batch by batch; returns their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, kind, *_ in result.description or ():
        if "UHUGEINT" in str(kind):  # Arrow would read it as signed
            raise ArgumentError(f"no Parquet file holds {name}, a UHUGEINT\nhint: CAST the column to VARCHAR")
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), clock.limits():
        warnings.simplefilter("ignore")  # DuckDB's advice is for queries written in Python
        read = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch  # older DuckDB
        reader = read(BATCH)
    names = _distinct(reader.schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    count = 0
    try:
        with replacing(path, durable=False) as temp, pq.ParquetWriter(temp, schema) as writer:
            while (batch := _next_batch(reader, clock)) is not None:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                count += batch.num_rows
    except pa.ArrowNotImplementedError as error:
        raise ArgumentError(f"{error}\nhint: CAST the column to VARCHAR") from error
    return count


def _next_batch(reader: pa.RecordBatchReader, clock: Clock) -> pa.RecordBatch | None:
    with clock.limits():
        return next(reader, None)
