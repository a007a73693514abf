"""Pieces of whole records for appends.

So the master's file ends with a complete record after a cut. The file's encoder knows where records end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rla_agent.outputs.formats import Ends


def pieces(data: bytes, ends_of: Ends, limit: int, *, cut: bool) -> list[bytes]:
    """Split `data`, which begins at a record, into parts of complete records.

    Args:
        data: the bytes.
        ends_of: tells where records end.
        limit: bytes that a part should not exceed; a longer record is a part of its own.
        cut: leave out an unfinished record at the end; else it is the end of the last part.

    Returns:
        The parts; joined they are `data`, or `data` without its unfinished end.
    """
    ends = ends_of(data)
    if not cut and (not ends or ends[-1] < len(data)):
        ends.append(len(data))
    parts = []
    start = last = 0
    for end in ends:
        if last > start and end - start > limit:
            parts.append(data[start:last])
            start = last
        last = end
    if last > start:
        parts.append(data[start:last])
    return parts
