"""Parent side of an SQL query's process.

`Query` starts the process before its tables are known, so that Python and DuckDB load in the meantime. Its
result is a DuckDB result over batches that are fetched from the process on demand.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import finalize

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.database.lake import sql_process
from rla_client.database.lake.sql_errors import told
from rla_client.database.lake.sql_frames import (
    END,
    FAILED,
    REQUEST,
    TABLE,
    as_stream,
    error_of,
    receive,
    send,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from duckdb.typing import DuckDBPyType

_AS_TEXT = frozenset({"bit", "time with time zone", "uuid"})


class Clock:
    """Time limit of a query, for its first rows and all others together."""

    def __init__(self, timeout_s: float | None, most_bytes: int | None = None) -> None:
        """Begin with the full time.

        Args:
            timeout_s: seconds; None or 0: no limit.
            most_bytes: bytes of all rows together, before conversion to Python objects; None: no limit.
        """
        self._timeout_s = timeout_s or None
        self.most_bytes = most_bytes
        self._left_s = self._timeout_s or 0.0
        self._stop: Callable[[], None] = lambda: None
        self._failure: Callable[[], Exception | None] = lambda: None

    def watch(self, stop: Callable[[], None], failure: Callable[[], Exception | None]) -> None:
        """Set the function that stops the query, and the one that returns the error that ended its rows."""
        self._stop, self._failure = stop, failure

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Stop the query inside this context once the time is up.

        Raises:
            ArgumentError: the query uses an unknown name, or something that is not allowed.
            DatabaseError: the query took too long or too much memory, or cannot continue.
        """
        import duckdb
        import pyarrow as pa

        begun, expired = time.monotonic(), threading.Event()

        def end() -> None:
            expired.set()
            self._stop()

        timer = threading.Timer(max(self._left_s, 0.0), end) if self._timeout_s else None
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            yield
        except (duckdb.Error, pa.ArrowException, ArgumentError, DatabaseError) as error:
            if expired.is_set() or (self._timeout_s and time.monotonic() - begun >= self._left_s):
                took = f"the query took longer than {self._timeout_s or 0:g} s"
                hint = "ask for less, or for more time (--timeout)"
                raise DatabaseError(f"{took}\nhint: {hint}") from error
            if isinstance(error, ArgumentError | DatabaseError):
                raise
            raise self._failure() or told(error) from error
        finally:
            self._left_s -= time.monotonic() - begun
            if timer is not None:
                timer.cancel()
                timer.join()  # its thread must not hold the last reference while Python exits


def fetched(result: duckdb.DuckDBPyConnection, most: int, clock: Clock) -> list[tuple[Any, ...]]:
    """The next `most` rows of a result; all rows for 0.

    Raises:
        DatabaseError: the query cannot continue, or the time is up.
    """
    with clock.limits():
        rows: list[tuple[Any, ...]] = result.fetchmany(most) if most else result.fetchall()
    return rows


class Query:
    """One query in a process of its own."""

    def __init__(self) -> None:
        """Start the process.

        Raises:
            DatabaseError: it cannot be started.
        """
        paths = [path for path in sys.path if isinstance(path, str) and "\0" not in path]
        command = [sys.executable or "", "-c", _START, sql_process.__name__, *paths]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise DatabaseError(f"no process can be started for the query: {error}") from error
        self._failure: Exception | None = None
        finalize(self, _close, self._process)  # readers of its rows keep a reference

    def execute(
        self,
        query: str,
        clock: Clock,
        *,
        files: Mapping[str, Sequence[str]],
        tables: Mapping[str, pa.Table],
        heard: float,
    ) -> duckdb.DuckDBPyConnection:
        """Run a query until its first rows are there.

        Args:
            query: one SELECT.
            clock: time limit.
            files: view → paths of its Parquet files.
            tables: other sources of the views: `lake_stale`, `lake_stale_samples`, and `fresh_<view>` for
                each view.
            heard: Unix seconds; runs that were last updated before are not live.

        Raises:
            ArgumentError: the query uses an unknown name, or something that is not allowed.
            DatabaseError: it took too long or too much memory, or the lake's files are damaged.
        """
        import duckdb
        import pyarrow as pa

        views = [name.removeprefix("fresh_") for name in tables if name.startswith("fresh_")]
        request = {
            "query": query,
            "views": views,
            "files": {name: list(paths) for name, paths in files.items()},
            "tables": len(tables),
            "heard": heard,
        }
        clock.watch(self.end, lambda: self._failure)
        try:
            with clock.limits():
                self._ask(request, tables)
                schema = pa.ipc.open_stream(self._answer()[1]).schema
        except BaseException:
            self.end()
            raise
        connection = duckdb.connect()
        batches = self._batches(clock.most_bytes)
        connection.register("result", pa.RecordBatchReader.from_batches(schema, batches))
        with clock.limits():
            return connection.execute(_selecting(schema.names, connection.view("result").types))

    def end(self) -> None:
        """End the process, even during a query."""
        self._process.kill()

    def _ask(self, request: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            send(pipe, REQUEST, json.dumps(request).encode("utf-8", "surrogatepass"))
            for name, table in tables.items():
                stream = as_stream(table.schema, *table.to_batches())
                send(pipe, TABLE, name.encode() + b"\0" + stream)
        except OSError as error:
            raise self._ended() from error

    def _answer(self) -> tuple[bytes, bytes]:
        assert self._process.stdout is not None
        try:
            kind, content = receive(self._process.stdout)
        except EOFError as error:
            raise self._ended() from error
        if kind == FAILED:
            raise error_of(content)
        return kind, content

    def _ended(self) -> DatabaseError:
        """Error for a process that ended without an answer, such as one killed for its memory."""
        self.end()
        status = self._process.wait()
        if status in {-signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV}:
            reason = f"the process of the query was ended by {signal.Signals(-status).name}"
            return DatabaseError(
                f"{reason}: it may need too much memory\nhint: ask for fewer columns, or aggregate"
            )
        return DatabaseError(f"the process of the query has ended with status {status}; stderr may say why")

    def _batches(self, most_bytes: int | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        taken = 0
        try:
            while True:
                kind, content = self._answer()
                if kind == END:
                    return
                taken += len(content)
                if most_bytes is not None and taken > most_bytes:
                    raise _too_large(most_bytes)
                yield pa.ipc.open_stream(content).read_next_batch()
        except (ArgumentError, DatabaseError) as error:
            self._failure = error
            raise
        finally:
            self.end()


def _too_large(most_bytes: int) -> DatabaseError:
    size = f"{most_bytes / 1e6:.0f} MB"
    return DatabaseError(f"the rows asked for have more than {size}\nhint: ask for fewer, or aggregate")


def _close(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, close its pipes and wait for it."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    process.wait()  # a killed process ends


# The process gets the module path of this one, also paths added by a script. Before that it imports only
# built-in modules, since `-c` puts the current folder first. The parent handles Ctrl-C.
_START = """
import sys
name, sys.path[:] = sys.argv[1], sys.argv[2:]
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import runpy
runpy.run_module(name, run_name="__main__")
"""


def _selecting(names: Sequence[str], kinds: Sequence[DuckDBPyType]) -> str:
    """SELECT of all columns, with types that only DuckDB prints properly cast to text."""
    columns = []
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True), 1):
        shown = _shown(kind)
        value = f"#{place}" if shown == str(kind) else f"CAST(#{place} AS {shown})"
        columns.append(f"{value} AS {_quoted(name)}")
    return f"SELECT {', '.join(columns)} FROM result"  # noqa: S608 - quoted names


def _shown(kind: DuckDBPyType) -> str:
    """The type that a column of this type is cast to; nested types may contain text."""
    if kind.id in _AS_TEXT:
        return "VARCHAR"
    if kind.id not in {"list", "array", "struct", "map", "union"}:
        return str(kind)
    inner = [(name, _shown(child)) for name, child in kind.children if not isinstance(child, int)]
    if kind.id in {"list", "array"}:
        size = dict(kind.children).get("size", "")
        return f"{inner[0][1]}[{size}]"
    if kind.id == "map":
        return f"MAP({', '.join(shown for _, shown in inner)})"
    fields = ", ".join(f"{_quoted(name)} {shown}" for name, shown in inner if name)  # a union's tag has none
    return f"{kind.id.upper()}({fields})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
