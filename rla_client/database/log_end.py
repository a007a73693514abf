"""The end of a text file that grows."""

from __future__ import annotations

from pathlib import Path

from rla_client.contract.files import open_plain, written_bytes

MAX_END_BYTES = 32 << 20  # of the last lines: 20 rows of 65,536 numbers


def last_lines(path: Path, lines: int, max_bytes: int = MAX_END_BYTES) -> tuple[list[bytes], int]:
    """The last lines of a file, within `max_bytes`, and the offset after them.

    Raises:
        OSError: it cannot be read.
    """
    with open_plain(path) as file:
        size = written_bytes(file)
        block, start = b"", size
        while start > 0 and block.count(b"\n") <= lines and size - start < max_bytes:
            step = min(start, 1 << 16)
            start -= step
            file.seek(start)
            block = file.read(step) + block
    return (block.splitlines()[-lines:] if lines > 0 else []), size
