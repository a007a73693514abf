"""`rla lake build|verify|status|drop` and `rla sql`: Parquet beside the database, and SQL over both."""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.cli.options import (
    MOMENT,
    TAKE,
    AsCsv,
    AsJson,
    DataRoot,
    Yes,
    add_command,
    agree,
    open_database,
    print_done,
    print_rows,
    say,
    say_aside,
)
from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.files import read_small, replacing
from rla_client.contract.parsing import rows_text
from rla_client.contract.textformat import examples
from rla_client.database.records import clock as now
from rla_client.database.text import bytes_text, json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    import duckdb
    import pyarrow as pa

    from rla_client.database.lake_tables import Clock

Bucket = Annotated[
    str, typer.Option("--bucket", help="Use the lake in a bucket: s3://bucket/prefix, gs://… or az://…")
]
Endpoint = Annotated[str, typer.Option("--endpoint", help="Address of a store that is not the vendor's own.")]

TERMINAL_LIMIT = 100  # rows on a terminal; a pipe and files get all
BATCH = 10_000  # rows at once into a file or a pipe
MAX_TABLE_ROWS = 100_000  # its columns are as wide as their widest cell, so all rows are held
MAX_QUERY_BYTES = 1 << 20
MAX_SHOWN = 20  # runs or parts that are named


def register(app: typer.Typer) -> None:
    """Add the commands."""
    lake_app = typer.Typer(
        help="Keep ended runs as Parquet files, for fast queries over many.", no_args_is_help=True
    )
    lines = ("rla lake build", "rla lake build --bucket s3://runs/cartpole")
    add_command(lake_app, build, None, *lines)
    add_command(lake_app, verify, None, "rla lake verify", "rla lake verify --data-root data")
    add_command(lake_app, status, None, "rla lake status", "rla lake status --json")
    add_command(lake_app, drop, None, "rla lake drop", "rla lake drop --yes")
    whole = examples("rla lake build", "rla lake status")
    app.add_typer(lake_app, name="lake", rich_help_panel=TAKE, epilog=whole)
    lines = (
        "rla sql 'SELECT state, count(*) FROM runs GROUP BY state'",
        "rla sql --csv 'SELECT run, seed FROM params' > seeds.csv",
    )
    add_command(app, sql, TAKE, *lines)


def _root(data_root: Path | None) -> Path:
    """The database's folder, once pyarrow is there."""
    _need_pyarrow()
    return open_database(data_root).data_root


def _need_pyarrow() -> None:
    """Be sure that a lake can be read.

    Raises:
        DatabaseError: pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise DatabaseError("the lake needs pyarrow: pip install 'rla-agent[lake]'")


def _progress(done: int, total: int) -> None:
    if total and sys.stderr.isatty():
        print(f"\r{done} of {total} runs…", end="", file=sys.stderr, flush=True)  # noqa: T201


def build(
    data_root: DataRoot = None, bucket: Bucket = "", endpoint: Endpoint = "", as_json: AsJson = False
) -> None:
    """Add the runs that ended since the last build; safe to run from cron, as often as you like."""
    from rla_client.database.lake_build import build as build_lake

    if bucket:
        from rla_client.database.lake_bucket import build_bucket, opened

        _need_pyarrow()
        with opened(bucket, endpoint) as lake:
            done = build_bucket(lake, now(), _progress)
    else:
        done = build_lake(_root(data_root), now(), _progress)
    if done is None:
        print_done({"runs": None}, "another process builds this lake; nothing was done", as_json=as_json)
        return
    for problem in done.problems[:MAX_SHOWN]:
        say_aside(f"left out: {problem}")
    counts = f"{done.read} read, {done.removed} removed, {done.parts} part(s) written"
    left = f"; {done.left_out} left for the next time" if done.left_out else ""
    told = f"{done.runs} run(s) in the lake; {counts}, {done.took_s:.1f} s{left}"
    print_done(asdict(done), told, as_json=as_json)


def verify(
    data_root: DataRoot = None, bucket: Bucket = "", endpoint: Endpoint = "", as_json: AsJson = False
) -> None:
    """Compare every run of the lake with its files; runs that differ are removed from the lake."""
    from rla_client.database.lake_build import verify as verify_lake

    if bucket:
        from rla_client.database.lake_bucket import opened, verify_bucket

        _need_pyarrow()
        with opened(bucket, endpoint) as lake:
            found = verify_bucket(lake, now(), _progress)
    else:
        found = verify_lake(_root(data_root), now(), _progress)
    lines = [f"damaged: {name}: {why}" for name, why in found.broken[:MAX_SHOWN]]
    lines += [f"differs: {run}" for run in found.wrong[:MAX_SHOWN]]
    lines.append(
        f"{found.checked} run(s) are as their files say, less {len(found.wrong)} that differ and "
        f"{len(found.broken)} damaged part(s); {found.changed} changed since the build, as readers see"
    )
    print_done(asdict(found), "\n".join(lines), as_json=as_json)
    if found.wrong or found.broken:
        say_aside(
            "they were removed from the lake\nhint: rla lake build"
            if found.dropped
            else "another process builds it; verify again later"
        )
        raise typer.Exit(1)


def status(data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Show what is in the lake and what is not yet."""
    from rla_client.database.lake_build import status as lake_status

    found = lake_status(_root(data_root), now())
    if as_json:
        say(json_text(asdict(found)))
        return
    when = "never" if found.built is None else time.strftime(MOMENT, time.localtime(found.built))
    say(f"{found.inside} run(s) in {found.parts} part(s), {bytes_text(found.bytes)}; newest part {when}")
    say(
        f"{found.missing} ended run(s) wait for `rla lake build`, {found.changed} of the lake changed since, "
        f"{found.live} are not ended"
    )


def drop(yes: Yes = False, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Delete the lake; the runs stay, and the next build recreates it."""
    from rla_client.database.lake import building

    root = open_database(data_root).data_root
    agree("Delete the lake? The runs stay.", yes)
    with building(root) as builder:
        if builder is None:
            raise DatabaseError("another process builds this lake\nhint: try again when it is done")
        builder.drop()
    print_done({"dropped": True}, "the lake is deleted", as_json=as_json)


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
        int | None, typer.Option("--limit", "-n", min=0, help="Print at most this many rows; 0 for all.")
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

    from rla_client.database.lake_tables import Clock

    text, clock = _query(query, file), Clock(timeout)
    with ExitStack() as held:
        if bucket:
            result = _of_bucket(held, bucket, endpoint, text, clock)
        else:
            result = open_database(data_root).sql(text, clock)
        _show(result, clock, parquet, limit, as_json=as_json, as_csv=as_csv)


def _of_bucket(
    held: ExitStack, bucket: str, endpoint: str, query: str, clock: Clock
) -> duckdb.DuckDBPyConnection:
    """A query's result over a bucket's lake, whose files are there until `held` ends."""
    from rla_client.database.lake_bucket import opened, query_bucket

    _need_pyarrow()
    lake = held.enter_context(opened(bucket, endpoint))
    result, without = query_bucket(lake, query, now(), clock)
    if without:
        say_aside(
            f"(without {without} run(s) that the bucket's lake does not have: live, or new since its build)"
        )
    return result


def _show(
    result: duckdb.DuckDBPyConnection,
    clock: Clock,
    parquet: Path | None,
    limit: int | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    from rla_client.database.lake_tables import fetched

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


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise ArgumentError('give one query, or -f FILE\nhint: rla sql "SELECT * FROM runs LIMIT 5"')
    data = (
        (query or "").encode("utf-8", "surrogateescape")
        if file is None
        else sys.stdin.buffer.read(MAX_QUERY_BYTES)
        if str(file) == "-"
        else read_small(file, MAX_QUERY_BYTES, links=True)
    )
    return data.decode("utf-8", "replace")


def _print_json(result: duckdb.DuckDBPyConnection, clock: Clock, names: list[str], limit: int) -> None:
    """As `print_rows`, in parts: all rows at once may take more memory than there is."""
    from decimal import Decimal

    ahead = "["
    for rows in _batches(result, clock, limit):
        numbers = ([float(cell) if isinstance(cell, Decimal) else cell for cell in row] for row in rows)
        text = json_text([dict(zip(names, row, strict=True)) for row in numbers])
        sys.stdout.write(ahead + text.removeprefix("[").removesuffix("\n]"))
        ahead = ","
    sys.stdout.write("[]\n" if ahead == "[" else "\n]\n")


def _batches(result: duckdb.DuckDBPyConnection, clock: Clock, limit: int) -> Iterator[list[list[object]]]:
    """The rows of a result, all for 0, some at a time."""
    from rla_client.database.lake_tables import fetched

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
    """Names of columns, each once: the second `value` is `value_1`, as in DuckDB's `.df()`."""
    found: dict[str, None] = {}
    for name in names:
        free = (one for one in (name, *(f"{name}_{n}" for n in range(1, len(names)))) if one not in found)
        found[next(free)] = None
    return [*found]


def _write_parquet(result: duckdb.DuckDBPyConnection, clock: Clock, path: Path) -> int:
    """Write all rows, batch by batch, whole or not at all; how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), clock.limits(result):
        warnings.simplefilter("ignore")  # DuckDB's advice is for who wrote the query in Python
        reader = (
            result.to_arrow_reader(BATCH)
            if hasattr(result, "to_arrow_reader")
            else result.fetch_record_batch(BATCH)
        )
    names = _distinct(reader.schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    count = 0
    try:
        with replacing(path, durable=False) as temp, pq.ParquetWriter(temp, schema) as writer:
            while (batch := _next_batch(reader, result, clock)) is not None:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                count += batch.num_rows
    except pa.ArrowNotImplementedError as error:
        raise ArgumentError(f"{error}\nhint: CAST the column to VARCHAR") from error
    return count


def _next_batch(
    reader: pa.RecordBatchReader, result: duckdb.DuckDBPyConnection, clock: Clock
) -> pa.RecordBatch | None:
    with clock.limits(result):
        return next(reader, None)
