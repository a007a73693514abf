"""Where the whole records of an output's file end, and copies of its beginning.

Used when a file and what is known of it differ: after a crash, a failed sync, a lost agent.db.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rla_agent.outputs.csv_table import CsvEncoder, offset_of_row, record_ends
from rla_agent.outputs.encoders import Encoder, JsonEncoder
from rla_agent.outputs.tensorboard import EventEncoder, whole_records_of
from rla_client.contract.files import atomic_file
from rla_client.contract.textformat import cells_of

CHUNK_BYTES = 1 << 20


def end_of_records(descriptor: int, size: int, *, events: bool) -> int:
    """Bytes of a file's first `size` that are whole lines, or whole event records."""
    if events:
        return whole_records_of(read_chunks(descriptor, size))
    for end in range(size, 0, -CHUNK_BYTES):
        start = max(0, end - CHUNK_BYTES)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
    return 0


@dataclass(frozen=True, slots=True)
class Whole:
    """What of a file that somebody else put there can be gone on from.

    Attributes:
        size: bytes of it that are whole records, but for `ending`.
        ending: what the last of them lacks: editors leave out the last newline.
        state: of an encoder that goes on behind them.
    """

    size: int
    ending: bytes
    state: dict[str, Any]


def whole_part(descriptor: int, encoder: Encoder) -> Whole:
    """Where an output may go on in a file that is not as it left it; size 0 when nowhere.

    Nowhere, too, in JSON that no reader takes: too deep a nesting.
    """
    size = os.fstat(descriptor).st_size
    try:
        return _whole_content(descriptor, size, encoder)
    except RecursionError:
        return Whole(0, b"", {})


def _whole_content(descriptor: int, size: int, encoder: Encoder) -> Whole:
    chunks = read_chunks(descriptor, size)
    if isinstance(encoder, EventEncoder):
        return Whole(whole_records_of(chunks), b"", {})
    ending = b"" if size and os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
    if isinstance(encoder, CsvEncoder):
        return _whole_table(descriptor, size, ending)
    if isinstance(encoder, JsonEncoder):
        last = end_of_records(descriptor, size, events=False)
        if ending and not _is_json(os.pread(descriptor, size - last, last)):
            size, ending = last, b""
        return Whole(size, ending, {"rows": sum(chunk.count(b"\n") for chunk in chunks) + len(ending)})
    return Whole(size, ending, {})


def _whole_table(descriptor: int, size: int, ending: bytes) -> Whole:
    header = before = last = records = 0
    for end in record_ends(chain(read_chunks(descriptor, size), (ending,))):
        header, before, last = header or end, last, end
        records += 1
    columns = _cells(os.pread(descriptor, header, 0))
    if ending and last > size:
        if len(_cells(os.pread(descriptor, size - before, before))) == len(columns):
            return Whole(size, ending, {"rows": records - 1, "columns": columns})
        last, records = before, records - 1
    return Whole(last, b"", {"rows": max(0, records - 1), "columns": columns})


def text_of(content: bytes) -> str:
    """The text of a CSV's bytes."""
    return content.replace(b"\0", b"").decode("utf-8", "replace")  # Python 3.10's reader refuses NUL


def _cells(record: bytes) -> list[str]:
    return cells_of(text_of(record))


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def put_aside(folder: int, name: str) -> None:
    """Rename a file in an open folder, unless empty, to `<stem>.old-N<ending>` with the first free N."""
    try:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_size == 0:
            return
    except FileNotFoundError:
        return
    stem, ending = os.path.splitext(name)
    number = 1
    while True:
        aside = f"{stem}.old-{number}{ending}"
        try:
            os.stat(aside, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            break
        number += 1
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def other_columns(descriptor: int, columns: Sequence[str]) -> list[str]:
    """A CSV's own columns where they are `columns` before or after a widening; else empty."""
    found = read_header(descriptor)
    both = min(len(found), len(columns))
    return found if both and found != columns and found[:both] == columns[:both] else []


def size_by_header(descriptor: int, encoder: CsvEncoder) -> int | None:
    """Bytes of a CSV's header and the rows of its encoder, which takes over the header.

    Returns:
        None where the header is the encoder's.
    """
    columns = other_columns(descriptor, encoder.columns)
    if not columns:
        return None
    encoder.set_columns(columns)
    return offset_of_row(read_chunks(descriptor, os.fstat(descriptor).st_size), encoder.rows)


def replace_durably(source: int, size: int, name: str, temp: str, folder: int) -> None:
    """Replace a file in an open folder by a copy of the first `size` bytes of an open one, durably.

    Args:
        source: descriptor of what is copied.
        size: bytes of it.
        name: of the file that is replaced.
        temp: of the copy until then.
        folder: descriptor of their folder.

    Raises:
        OSError: it could not be done.
    """
    mode = os.fstat(source).st_mode & 0o777
    with atomic_file(name, mode=mode, dir_fd=folder, temp=temp) as file:
        file.writelines(read_chunks(source, size))


def read_header(descriptor: int) -> list[str]:
    """Columns of a CSV; empty for an empty file."""
    whole = os.fstat(descriptor).st_size
    tried = length = 0
    while not length and tried < whole:
        tried = min(whole, tried * 4 or CHUNK_BYTES)
        length = offset_of_row(read_chunks(descriptor, tried), 0)
    return _cells(os.pread(descriptor, length, 0))


def read_chunks(descriptor: int, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file, piece by piece."""
    offset = 0
    while offset < size:
        chunk = os.pread(descriptor, min(CHUNK_BYTES, size - offset), offset)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)
