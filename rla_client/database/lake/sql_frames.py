"""Frames on the pipes of a query's process.

In both directions a frame has a kind (one byte), a length (8 bytes, little-endian) and a content. The
parent sends `Q`, the request as JSON, then `T` for each table that is not in a file: its name, a zero byte
and an Arrow stream. The process answers with `S`, the result's schema as an Arrow stream without batches;
with `B` for each batch, an Arrow stream of it; and with `.` at the end; or, instead of any of these, with
`E`: {"kind", "text"} as JSON.
"""

from __future__ import annotations

import json
import struct
from typing import IO, TYPE_CHECKING

from rla_client.contract.errors import ArgumentError, DatabaseError

if TYPE_CHECKING:
    import pyarrow as pa


HEADER = struct.Struct("<cQ")
REQUEST, TABLE, SCHEMA, ROWS, END, FAILED = b"Q", b"T", b"S", b"B", b".", b"E"


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
    """The error in an `E` frame."""
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
