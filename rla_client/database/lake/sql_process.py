"""Process of one SQL query.

DuckDB's memory limit and its interrupt do not cover values that a query generates (`range(100000000)`,
`repeat('x', 2000000000)`), nor their conversion to Python objects. Therefore a query runs in a process of
its own, which the kernel limits and the parent may kill. The tables that it may read come with the request
(`sql_frames`); rows are returned in batches of at most `SEND_BYTES`, each row of at most `MAX_ROW_BYTES`.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.database.lake.sql_errors import MEMORY_BYTES, told, too_much_memory
from rla_client.database.lake.sql_frames import END, FAILED, REQUEST, ROWS, SCHEMA, as_stream, receive, send
from rla_client.database.lake.sql_views import make_views
from rla_client.stream.free_memory import memory_free

if TYPE_CHECKING:
    import pyarrow as pa


LEAST_MEMORY_BYTES = 256 << 20
BATCH_ROWS = 10_000
LOOK_S = 1.0  # between checks that the parent still runs
SEND_BYTES = 8 << 20  # of a batch
MAX_ROW_BYTES = 8 << 20  # about ten times as much as Python objects


def main() -> None:
    """Answer the request on standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with the frames
    try:
        _serve(answers)
        send(answers, END)
    except (ArgumentError, DatabaseError) as error:
        kind = "argument" if isinstance(error, ArgumentError) else "database"
        send(answers, FAILED, json.dumps({"kind": kind, "text": str(error)}).encode())
    except (BrokenPipeError, EOFError):
        os._exit(1)  # the parent has ended


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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    memory = memory_bytes()
    connection = duckdb.connect(
        config={"python_enable_replacements": False, "autoinstall_known_extensions": False,
                "autoload_known_extensions": False}
    )  # fmt: skip
    try:
        make_views(connection, request, tables, memory)
        limit_memory(memory)
        warnings.simplefilter("ignore")  # DuckDB's advice is for queries written in Python
        result = connection.execute(request["query"])
        read = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch  # older DuckDB
        reader = read(BATCH_ROWS)
        first = next(reader, None)  # errors of the query are raised before the schema is sent
        send(answers, SCHEMA, as_stream(reader.schema))
        while first is not None:
            for part in parts(first):
                send(answers, ROWS, as_stream(part.schema, part))
            first = next(reader, None)
    except (duckdb.Error, pa.ArrowException) as error:
        raise told(error, memory) from error
    except MemoryError as error:
        raise too_much_memory(memory) from error


def _end_with_parent() -> None:
    """End this process when standard input ends, which happens when the parent ends.

    A fork of the parent keeps that open; then the parent's id changes.
    """
    parent = os.getppid()
    while os.getppid() == parent and not select.select([0], [], [], LOOK_S)[0]:
        pass
    os._exit(1)


def memory_bytes() -> int:
    """Memory limit of a query: `MEMORY_BYTES`, or half of the free memory."""
    return max(LEAST_MEMORY_BYTES, min(MEMORY_BYTES, memory_free() // 2))


def limit_memory(memory: int) -> None:
    """Make the kernel refuse this process more than `memory` further bytes, and kill it before others."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        size = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        size = None
    if size is None:
        return  # not on Linux: only DuckDB's own limit applies
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(size[1]) * 1024 + memory
    resource.setrlimit(
        resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of at most `SEND_BYTES`, or of one row.

    Raises:
        DatabaseError: a row has more than `MAX_ROW_BYTES`.
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


if __name__ == "__main__":
    main()
