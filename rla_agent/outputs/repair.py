"""Where the whole records of an output's file end, and copies of its beginning.

Used when a file and what is known of it differ: after a crash, a failed sync, a lost agent.db.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from rla_agent.outputs.content import CHUNK_BYTES, Content, read_chunks
from rla_agent.outputs.csv_table import CsvEncoder, cells, offset_of_row
from rla_agent.outputs.encoders import Encoder, Whole
from rla_client.contract.files import atomic_file


def whole_part(descriptor: int, encoder: Encoder) -> Whole:
    """Where an output may continue in a file that is not as it left it; size 0 when nowhere.

    Nowhere, too, in JSON that no reader takes: too deep a nesting.
    """
    try:
        return encoder.whole_part(Content(descriptor))
    except RecursionError:
        return Whole(0, b"", {})


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
    return cells(os.pread(descriptor, length, 0))
