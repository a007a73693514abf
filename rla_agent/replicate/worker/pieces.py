"""Pieces of whole records for appends.

A reader on the master sees rows, never half ones. Where a record ends the file's encoder knows. A write(2)
that crosses a page makes the file longer page by page (ext4, tmpfs), so a reader may see the part before
the page's end. With `page_of` only single records cross pages, by a write of their own, which leaves a few
hundred nanoseconds; nothing over SFTP can leave less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rla_agent.outputs.formats import Ends


PAGE_BYTES: Final = 4096


def pieces(data: bytes, ends_of: Ends, limit: int, *, cut: bool, page_of: int | None = None) -> list[bytes]:
    """Split `data`, which begins at a record, into parts of whole records.

    Args:
        data: the bytes.
        ends_of: tells where records end.
        limit: bytes that a part should not exceed; a longer record is a part of its own.
        cut: leave out an unfinished record at the end; else it is the end of the last part.
        page_of: where in the file `data` goes; then no part of several records crosses a page.

    Returns:
        The parts; joined they are `data`, or `data` without its unfinished end.
    """
    ends = ends_of(data)
    if not cut and (not ends or ends[-1] < len(data)):
        ends.append(len(data))
    parts = []
    start = last = 0
    for end in ends:
        if last > start and (end - start > limit or _crosses(page_of, start, end)):
            parts.append(data[start:last])
            start = last
        last = end
    if last > start:
        parts.append(data[start:last])
    return parts


def _crosses(page_of: int | None, start: int, end: int) -> bool:
    return page_of is not None and (page_of + start) // PAGE_BYTES != (page_of + end - 1) // PAGE_BYTES
