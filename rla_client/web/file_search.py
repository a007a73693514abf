"""Search in a run's text files."""

from __future__ import annotations

import time
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.plain_files import written_bytes
from rla_client.web.item_files import asked_file
from rla_client.web.readable_text import readable
from rla_client.web.run_registry import Site

SEARCHED_BYTES = 512 << 20  # of a file, for one answer
SEARCH_S = 3.0
BLOCK_BYTES = 1 << 20
MAX_HITS = 200
MAX_NEEDLE = 200  # characters of a search text
CONTEXT_BYTES = 300  # of a line, around a hit


def search(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Lines of a file that contain a text, from an offset on. The case of ASCII letters is ignored.

    Returns:
        `hits` [[offset in bytes, line around it], …]; `next`: offset of the next search, None at the end.
    """
    needle = str(asked.get("text", ""))[:MAX_NEEDLE].encode("utf-8", "replace").lower()
    place = asked.get("from", 0)
    if not needle or not isinstance(place, int) or place < 0:
        raise ArgumentError("the search text is empty, or the offset is not a whole number")
    hits: list[list[Any]] = []
    until = time.monotonic() + SEARCH_S
    with asked_file(site, asked) as file:
        size = written_bytes(file)
        limit = min(size, place + SEARCHED_BYTES)
        file.seek(place)
        before = b""  # end of the previous block, so that a hit across two blocks is found
        while place < limit and len(hits) < MAX_HITS and time.monotonic() < until:
            block = file.read(min(BLOCK_BYTES, limit - place))
            if not block:
                break
            _search(before + block, len(before), needle, place - len(before), hits)
            place += len(block)
            before = block[-CONTEXT_BYTES - len(needle) :]
    if len(hits) == MAX_HITS:
        place = hits[-1][0] + len(needle)
    return {"hits": hits, "next": place if place < size else None, "size": size}


def _search(data: bytes, known: int, needle: bytes, offset: int, hits: list[list[Any]]) -> None:
    lowered = data.lower()
    found = lowered.find(needle, max(0, known - len(needle) + 1))
    while found >= 0 and len(hits) < MAX_HITS:
        begin = max(lowered.rfind(b"\n", 0, found) + 1, found - CONTEXT_BYTES // 2)
        end = lowered.find(b"\n", found, found + CONTEXT_BYTES)
        hits.append([offset + found, readable(data[begin : end if end >= 0 else found + CONTEXT_BYTES])])
        line_end = lowered.find(b"\n", found)
        if line_end < 0:
            return
        found = lowered.find(needle, line_end)
