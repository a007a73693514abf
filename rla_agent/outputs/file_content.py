"""Piecewise reader of an output file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator

CHUNK_BYTES = 1 << 20
NEWLINE = re.compile(rb"\n")


class FileContent:
    """The first `size` bytes of a file.

    Args:
        descriptor: the open file; stays open, its offset as it is.
        size: bytes that count; None: all that it has now.
    """

    def __init__(self, descriptor: int, size: int | None = None) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size if size is None else size

    def chunks(self, offset: int = 0) -> Iterator[bytes]:
        """All of it from `offset` on, in pieces that end anywhere."""
        return read_chunks(self._descriptor, self.size, offset)

    def at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes."""
        return os.pread(self._descriptor, count, offset)

    def end_of_lines(self) -> int:
        """Bytes up to the last newline, with it."""
        for end in range(self.size, 0, -CHUNK_BYTES):
            start = max(0, end - CHUNK_BYTES)
            newline = self.at(start, end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
        return 0


def read_chunks(descriptor: int, size: int, offset: int = 0) -> Iterator[bytes]:
    """The first `size` bytes of a file from `offset` on, piece by piece."""
    while offset < size:
        chunk = os.pread(descriptor, min(CHUNK_BYTES, size - offset), offset)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)


def ends_in(chunks: Iterable[bytes], ends: Callable[[bytes], list[int]]) -> Iterator[int]:
    """Offsets after each whole record of a content in pieces that end anywhere.

    Args:
        chunks: the pieces.
        ends: where records end in bytes that begin with one.
    """
    begin, rest = 0, b""
    for chunk in chunks:
        rest += chunk
        record_ends = ends(rest)
        for end in record_ends:
            yield begin + end
        if record_ends:
            begin, rest = begin + record_ends[-1], rest[record_ends[-1] :]


def cut(
    content: FileContent,
    begin: int,
    ends: Iterable[int],
    rows: int | None,
    is_later: Callable[[bytes], bool] | None,
) -> tuple[int, int]:
    """Bytes of a content that stay, with the rows in them.

    Args:
        content: of the file.
        begin: where its first row begins.
        ends: where its rows end.
        rows: so many stay; None: `is_later` counts.
        is_later: the rows before the first for which it is true stay; None: all.
    """
    keep = begin
    count = 0
    for end in ends:
        if rows is not None:
            if count >= rows:
                break
        elif is_later is not None and is_later(content.at(keep, end - keep)):
            break
        keep, count = end, count + 1
    return keep, count


def later_than(
    time_step: float | None,
    step_of: Callable[[bytes], float],
    saved: float = -math.inf,
    moment_of: Callable[[bytes], float] = lambda _record: math.inf,
) -> Callable[[bytes], bool] | None:
    """Predicate for `cut`: whether a record is of a later time-step; false where it has none.

    Args:
        time_step: a record is later whose step is above it; None: there is no later one.
        step_of: gives a record's.
        saved: Unix seconds; only what was recorded after that is later.
        moment_of: gives when a record was recorded.
    """
    if time_step is None:
        return None
    limit = time_step

    def is_later(record: bytes) -> bool:
        try:
            return step_of(record) > limit and moment_of(record) > saved
        except (ValueError, TypeError, LookupError):
            return False

    return is_later


def line_ends(data: bytes) -> list[int]:
    """Positions behind each newline."""
    return [match.end() for match in NEWLINE.finditer(data)]


def missing_newline(content: FileContent) -> bytes:
    """The newline that a text lacks at its end, else nothing."""
    return b"" if content.size and content.at(content.size - 1, 1) == b"\n" else b"\n"
