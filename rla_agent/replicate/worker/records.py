"""Where a record of a growing file ends: a CSV row, a line, a TensorBoard event. Pure.

`pieces` cuts what is to be appended into parts that each end with a whole record, so a reader on
the master sees rows, never half ones. A CSV row may hold line breaks inside quotes: it ends at a
line break with an even number of quotes before it. A TensorBoard record is uint64 length, uint32
CRC, data, uint32 CRC.

A write(2) that crosses a page makes the file longer page by page (ext4, tmpfs), so a reader may see
the part before the page's end. With `page_of` only single records cross pages, by a write of their
own, which leaves a few hundred nanoseconds; nothing over SFTP can leave less.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rla_agent.replicate.worker.plan import RecordKind

_EVENT_FRAME: Final = 16  # bytes around the data of one record
PAGE_BYTES: Final = 4096
MAX_EVENT_BYTES: Final = 1 << 30  # a longer one is damage, not a record


def pieces(
    data: bytes, kind: RecordKind, limit: int, *, cut: bool, page_of: int | None = None
) -> list[bytes]:
    """Split `data`, which begins at a record, into parts of whole records.

    Args:
        data: the bytes.
        kind: how records end.
        limit: bytes that a part should not exceed; a longer record is a part of its own.
        cut: leave out an unfinished record at the end; else it is the end of the last part.
        page_of: where in the file `data` goes; then no part of several records crosses a page.

    Returns:
        The parts; joined they are `data`, or `data` without its unfinished end.
    """
    ends = record_ends(data, kind)
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


def record_ends(data: bytes, kind: RecordKind) -> list[int]:
    """Positions just behind each whole record."""
    return _event_ends(data) if kind == "events" else _line_ends(data, quoted=kind == "csv")


def _line_ends(data: bytes, *, quoted: bool) -> list[int]:
    ends = []
    at = quotes = start = 0
    quoted = quoted and b'"' in data
    while (at := data.find(b"\n", at)) >= 0:
        at += 1
        if quoted:
            quotes += data.count(b'"', start, at)
            start = at
        if quotes % 2 == 0:
            ends.append(at)
    return ends


def _event_ends(data: bytes) -> list[int]:
    ends = []
    at = 0
    while at + _EVENT_FRAME <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        if size > MAX_EVENT_BYTES or at + _EVENT_FRAME + size > len(data):
            break
        at += _EVENT_FRAME + size
        ends.append(at)
    return ends
