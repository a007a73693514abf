"""`rla sql`: SQL query over runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.lake_options import Bucket, Endpoint, need_pyarrow
from rla_client.cli.open_database import open_database
from rla_client.cli.options import MOST_SHOWN, AsCsv, AsJson, DataRoot
from rla_client.cli.output import say_aside
from rla_client.cli.registration import TAKE, add_command
from rla_client.cli.sql_result import show_result
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.database.clock import clock as now

if TYPE_CHECKING:
    from contextlib import ExitStack

    import duckdb

    from rla_client.database.lake.sql_query import Clock


MAX_TABLE_BYTES = 64 << 20  # of an aligned table, which has all rows in memory
MAX_QUERY_BYTES = 1 << 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = (
        "rla sql 'SELECT state, count(*) FROM runs GROUP BY state'",
        "rla sql --csv 'SELECT run, seed FROM params' > seeds.csv",
    )
    add_command(app, sql, TAKE, *lines)


def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="One SELECT over runs, params, last, rows, system, files."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the query from a file; - is stdin.")
    ] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write the rows to this file.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, max=MOST_SHOWN, help="Print at most this many rows; 0 for all."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Stop the query after this many seconds.")] = 300.0,
    data_root: DataRoot = None,
    bucket: Bucket = "",
    endpoint: Endpoint = "",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Query runs in SQL: `rla sql "SELECT state, count(*) FROM runs GROUP BY state"`."""
    from contextlib import ExitStack

    from rla_client.database.lake.sql_query import Clock

    whole = as_json or as_csv or parquet is not None  # these are printed in batches
    text, clock = _query(query, file), Clock(timeout, None if whole else MAX_TABLE_BYTES)
    with ExitStack() as held:
        if bucket:
            result = _of_bucket(held, bucket, endpoint, text, clock)
        else:
            result = open_database(data_root).sql(text, clock)
        show_result(result, clock, parquet, limit, as_json=as_json, as_csv=as_csv)


def _of_bucket(
    held: ExitStack, bucket: str, endpoint: str, query: str, clock: Clock
) -> duckdb.DuckDBPyConnection:
    """Result of a query over a bucket's lake, whose local files exist until `held` ends."""
    from rla_client.database.lake.bucket_lake import opened
    from rla_client.database.lake.bucket_query import query_bucket

    need_pyarrow()
    lake = held.enter_context(opened(bucket, endpoint))
    result, without = query_bucket(lake, query, now(), clock)
    if without:
        say_aside(
            f"(without {without} run(s) that the bucket's lake does not have: live, or new since its build)"
        )
    return result


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise ArgumentError('give one query, or -f FILE\nhint: rla sql "SELECT * FROM runs LIMIT 5"')
    if file is None:
        data = (query or "").encode("utf-8", "surrogateescape")
    elif str(file) == "-":
        data = sys.stdin.buffer.read(MAX_QUERY_BYTES)
    else:
        data = read_small(file, MAX_QUERY_BYTES, links=True)
    return data.decode("utf-8", "replace")
