"""The process that runs one SQL query.

DuckDB's memory limit and its interrupt do not reach the values that a query makes as it goes
(`range(100000000)`, `repeat('x', 2000000000)`), nor what is made of them for Python. So a query has a process
of its own, which the kernel limits and whoever asked may kill. The tables that it may read come with the
request, and rows leave it in batches of at most `SEND_BYTES`, one row of at most `MAX_ROW_BYTES`.

Wire format: both ways frames of a kind (one byte), a length (8 bytes, little-endian) and a content. Towards
the process: `Q`, the request as JSON, then for each table that does not lie in a file `T`: its name, a zero
byte and an Arrow stream. From it: `S`, the result's schema as an Arrow stream without batches; for each batch
`B`, an Arrow stream with one; `.` at the end; or, instead of any of these, `E`: {"kind", "text"} as JSON.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import struct
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.text.spelling import hint as spelling_hint
from rla_client.stream.free_memory import memory_free

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MEMORY_BYTES = 4 << 30  # of a query; nothing is written to disk. On a small machine half of what is free
LEAST_MEMORY_BYTES = 256 << 20
BATCH_ROWS = 10_000
LOOK_S = 1.0  # between two looks for whoever asked
SEND_BYTES = 8 << 20  # of a batch
MAX_ROW_BYTES = 8 << 20  # as Python objects some ten times as much
HEADER = struct.Struct("<cQ")
REQUEST, TABLE, SCHEMA, ROWS, END, FAILED = b"Q", b"T", b"S", b"B", b".", b"E"
_ROLE = "nullif(regexp_extract(metric, '@([A-Za-z][A-Za-z0-9_-]*)$', 1), '')"  # as `split_role`
VIEWS = {
    "runs": """SELECT run, table_name AS "table", idx AS "index", host,
        CASE WHEN state IN ('running', 'stalled') AND updated < {heard} THEN 'unknown'
            ELSE coalesce(state, 'unknown') END AS state,
        coalesce(try_strptime(left(idx, 26), '%Y/%m/%d/%H-%M-%S-%f'),
            make_timestamp(CAST(opened * 1e6 AS BIGINT)))
            AS opened,
        duration_s AS took, time_step AS step, nullif(likely, '') AS metric,
        try_cast(likely_text AS DOUBLE) AS value, from_json(tags, '["VARCHAR"]') AS tags, note,
        nullif(display_name, '') AS name,
        string_split(kinds, ' ') AS kinds, nullif(parent, '') AS parent FROM ({source})""",
    "params": "SELECT run, name, value, number FROM ({source})",
    "last": f"SELECT run, metric, value, text, {_ROLE} AS role FROM ({{source}})",  # noqa: S608 - constants
    "rows": f"""SELECT * FROM (SELECT run, unnest(step) AS time_step, metric, unnest(value) AS value,
        unnest(text) AS text, {_ROLE} AS role FROM ({{source}})
        WHERE metric <> 'time-step' AND metric NOT LIKE 'time-step@%')
        WHERE value IS NOT NULL OR text IS NOT NULL""",  # noqa: S608 - constants
    "system": """SELECT * FROM (SELECT run, unnest(step) AS time, metric, unnest(value) AS value
        FROM ({source}) WHERE metric <> 'timestamp') WHERE value IS NOT NULL""",
    "files": """SELECT run, kind, path, bytes, make_timestamp(CAST(changed * 1e6 AS BIGINT)) AS changed
        FROM ({source})""",
    "samples": """SELECT run, id, step AS time_step,
        make_timestamp(TRY_CAST("time" * 1e6 AS BIGINT)) AS logged, name, role, "group", reward, prompt,
        completion, numbers, texts FROM ({source})""",
}  # fmt: skip


# -- frames ------------------------------------------------------------------------------------------


def send(pipe: IO[bytes], kind: bytes, content: bytes | memoryview = b"") -> None:
    """Write one frame."""
    pipe.write(HEADER.pack(kind, len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: IO[bytes]) -> tuple[bytes, bytes]:
    """Read one frame.

    Raises:
        EOFError: the other side has ended.
    """
    head = pipe.read(HEADER.size)
    if len(head) < HEADER.size:
        raise EOFError
    kind, size = HEADER.unpack(head)
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return kind, content


def error_of(content: bytes) -> ArgumentError | DatabaseError:
    """The error that an `E` frame tells."""
    found = json.loads(content)
    return (ArgumentError if found["kind"] == "argument" else DatabaseError)(found["text"])


def as_stream(schema: pa.Schema, *batches: pa.RecordBatch) -> memoryview:
    """Batches as an Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


# -- the process -------------------------------------------------------------------------------------


def main() -> None:
    """Answer the request on standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints does not come between the frames
    try:
        _serve(answers)
        send(answers, END)
    except (ArgumentError, DatabaseError) as error:
        kind = "argument" if isinstance(error, ArgumentError) else "database"
        send(answers, FAILED, json.dumps({"kind": kind, "text": str(error)}).encode())
    except (BrokenPipeError, EOFError):
        os._exit(1)  # whoever asked has ended


def _serve(answers: IO[bytes]) -> None:
    import duckdb
    import pyarrow as pa

    kind, content = receive(sys.stdin.buffer)
    if kind != REQUEST:
        raise EOFError
    request = json.loads(content)
    tables: dict[str, pa.Table] = {}
    for _ in range(request["tables"]):
        name, _, stream = receive(sys.stdin.buffer)[1].partition(b"\0")
        tables[name.decode()] = pa.ipc.open_stream(stream).read_all()
    threading.Thread(target=_end_with_the_asker, daemon=True).start()
    memory = memory_bytes()
    connection = duckdb.connect(
        config={"python_enable_replacements": False, "autoinstall_known_extensions": False,
                "autoload_known_extensions": False}
    )  # fmt: skip
    try:
        make_views(connection, request, tables, memory)
        limit_memory(memory)
        warnings.simplefilter("ignore")  # DuckDB's advice is for who wrote the query in Python
        result = connection.execute(request["query"])
        read = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch  # by DuckDB's age
        reader = read(BATCH_ROWS)
        first = next(reader, None)  # the query's own faults show before there is a schema
        send(answers, SCHEMA, as_stream(reader.schema))
        while first is not None:
            for part in parts(first):
                send(answers, ROWS, as_stream(part.schema, part))
            first = next(reader, None)
    except (duckdb.Error, pa.ArrowException) as error:
        raise told(error, memory) from error
    except MemoryError as error:
        raise too_much_memory(memory) from error


def _end_with_the_asker() -> None:
    """End when standard input does, which its other end closes by ending itself.

    A fork of the asker keeps that open: then the parent is another one.
    """
    asker = os.getppid()
    while os.getppid() == asker and not select.select([0], [], [], LOOK_S)[0]:
        pass
    os._exit(1)


def memory_bytes() -> int:
    """What a query may take: `MEMORY_BYTES`, or half of what is free for this process."""
    return max(LEAST_MEMORY_BYTES, min(MEMORY_BYTES, memory_free() // 2))


def limit_memory(memory: int) -> None:
    """Let the kernel refuse this process more than `memory` beyond what it has, and end it before others."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        size = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        size = None
    if size is None:
        return  # no Linux: DuckDB's own limit holds for what it stores
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(size[1]) * 1024 + memory
    resource.setrlimit(
        resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def make_views(
    connection: duckdb.DuckDBPyConnection,
    request: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    memory: int,
) -> None:
    """Make the views that the query names, then lock what it may reach."""
    run, files = connection.execute, request["files"]
    for name in request["views"]:
        stale = "lake_stale_samples" if name == "samples" else "lake_stale"
        connection.register(stale, tables[stale])
        without = f"WHERE run NOT IN (SELECT run FROM {stale})" if tables[stale].num_rows else ""  # noqa: S608
        fresh = tables[f"fresh_{name}"]
        connection.register(f"fresh_{name}", fresh)
        columns = ", ".join(f'"{column}"' for column in fresh.schema.names)
        sources = (
            [f"SELECT {columns} FROM fresh_{name}"]  # noqa: S608 - names of ours
            if fresh.num_rows or not files.get(name)
            else []
        )
        if files.get(name):
            listing = ", ".join(_quoted(escape(path)) for path in files[name])
            sources.append(f"SELECT {columns} FROM read_parquet([{listing}]) {without}")  # noqa: S608
        text = VIEWS[name].format(source=" UNION ALL ".join(sources), heard=float(request["heard"]))
        run(f"CREATE TEMP VIEW {name} AS {text}")
    run("SET arrow_lossless_conversion = true")  # else Arrow takes bits for bytes, and a time's zone away
    run("SET enable_progress_bar = false")
    run(f"SET memory_limit = '{memory >> 20}MiB'")
    run("SET temp_directory = ''")
    paths = [path for found in files.values() for path in found]
    run(f"SET allowed_paths = [{', '.join(map(_quoted, paths))}]")
    run("SET enable_external_access = false")
    run("SET lock_configuration = true")


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of at most `SEND_BYTES`, unless one row has more.

    Raises:
        DatabaseError: one row has more than `MAX_ROW_BYTES`.
    """
    if batch.nbytes <= SEND_BYTES and batch.num_rows:
        yield batch
    elif batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from parts(batch.slice(0, half))
        yield from parts(batch.slice(half))
    elif batch.nbytes > MAX_ROW_BYTES:
        size = f"{batch.nbytes / 1e6:.0f} MB, at most {MAX_ROW_BYTES / 1e6:.0f} are printed"
        raise DatabaseError(f"one row of the result has {size}\nhint: cut its lists and texts, or aggregate")
    elif batch.num_rows:
        yield batch


# -- errors ------------------------------------------------------------------------------------------


def told(error: Exception, memory: int = MEMORY_BYTES) -> DatabaseError | ArgumentError:
    """What went wrong, in words for people."""
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
    """The query did not fit."""
    size = f"{memory / (1 << 30):.3g} GB"
    return DatabaseError(f"the query needs more than {size}\nhint: ask for fewer columns, or aggregate")


def _views() -> str:
    return f"the views are {', '.join(VIEWS)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    main()
