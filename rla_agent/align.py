"""Where the whole records of an output's file end, and copies of its beginning.

Used when a file and what is known of it differ: after a crash, a failed sync, a lost agent.db.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence

from rla_agent.sinks.csv_table import offset_of_row
from rla_agent.sinks.tensorboard import whole_records

CHUNK_BYTES = 1 << 20


def end_of_records(descriptor: int, size: int, *, events: bool) -> int:
    """Bytes of a file's first `size` that are whole lines, or whole event records."""
    content = b"".join(read_chunks(descriptor, size))
    return whole_records(content) if events else content.rfind(b"\n") + 1


def other_columns(descriptor: int, columns: Sequence[str]) -> list[str]:
    """A CSV's own columns where they are `columns` before or after a widening; else empty."""
    found = read_header(descriptor)
    both = min(len(found), len(columns))
    return found if both and found != columns and found[:both] == columns[:both] else []


def size_of_rows(descriptor: int, rows: int) -> int:
    """Bytes of a CSV's header and first `rows` rows; fewer when it ends before."""
    return offset_of_row(read_chunks(descriptor, os.fstat(descriptor).st_size), rows)


def copy_durably(source: int, size: int, name: str, folder: int) -> None:
    """Copy the first `size` bytes of an open file to a new one in an open folder, and sync that.

    Raises:
        OSError: it could not be done; no file is left.
    """
    new = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
    try:
        with open(new, "wb") as file:
            file.writelines(read_chunks(source, size))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise


def read_header(descriptor: int) -> list[str]:
    """Columns of a CSV; empty for an empty file."""
    whole = os.fstat(descriptor).st_size
    tried = length = 0
    while not length and tried < whole:
        tried = min(whole, tried * 4 or CHUNK_BYTES)
        length = offset_of_row(read_chunks(descriptor, tried), 0)
    text = os.pread(descriptor, length, 0).decode("utf-8", "replace")
    return next(csv.reader(io.StringIO(text, newline="")), [])


def read_chunks(descriptor: int, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file, piece by piece."""
    offset = 0
    while offset < size:
        chunk = os.pread(descriptor, min(CHUNK_BYTES, size - offset), offset)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)
