"""Pieces of text files."""

from __future__ import annotations

import codecs
import re
import time
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.plain_files import written_bytes
from rla_client.web.item_files import asked_file
from rla_client.web.run_registry import Site

CHUNK_BYTES = 128 << 10  # of a text at once
SEARCHED_BYTES = 512 << 20  # of a file, by one answer
SEARCH_S = 3.0
BLOCK_BYTES = 1 << 20
MAX_HITS = 200
MAX_NEEDLE = 200  # characters that are searched for
CONTEXT_BYTES = 300  # of a line, around what was found
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def text(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """A piece of a text: its end, or what lies `before`, `after` or `around` an offset in bytes.

    Lines are whole where they are not longer than a piece. `restarted`: the file is shorter than `after`.
    """
    modes = {"before": CHUNK_BYTES, "after": 0, "around": CHUNK_BYTES // 2}  # how far back it begins
    mode = next((name for name in modes if name in asked), "")
    place = asked.get(mode, 0)
    if not isinstance(place, int) or place < 0:
        raise ArgumentError("an offset is a whole number")
    with asked_file(site, asked) as file:
        size = written_bytes(file)
        restarted = mode == "after" and place > size
        mode = "" if restarted else mode
        start = max(0, min(place - modes[mode] if mode else size - CHUNK_BYTES, size))
        end = min(size, place if mode == "before" else start + CHUNK_BYTES)
        file.seek(start)
        block = file.read(max(0, end - start))
    if start and mode != "after":
        skipped = block.find(b"\n") + 1
        if skipped < len(block) and (mode != "around" or start + skipped <= place):
            start, block = start + skipped, block[skipped:]
    if start + len(block) < size and mode in {"after", "around"}:
        block = block[: block.rfind(b"\n") + 1] or block
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(block)
    block = block.removesuffix(decoder.getstate()[0])  # without the beginning of a character at its end
    end = start + len(block)
    return {"size": size, "start": start, "end": end, "text": readable(block), "restarted": restarted}


def readable(data: bytes) -> str:
    """Bytes of a text without terminal escapes and controls; of a progress bar what was written last."""
    shown = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    if "\r" in shown:
        shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in shown.split("\n"))
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", shown)


def search(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Lines of a file that hold a text, whatever its case (of ASCII), from an offset on.

    Returns:
        `hits` [[offset in bytes, line around it], …]; `next`: where to continue, None at the end.
    """
    needle = str(asked.get("text", ""))[:MAX_NEEDLE].encode("utf-8", "replace").lower()
    place = asked.get("from", 0)
    if not needle or not isinstance(place, int) or place < 0:
        raise ArgumentError("say what to search for")
    hits: list[list[Any]] = []
    until = time.monotonic() + SEARCH_S
    with asked_file(site, asked) as file:
        size = written_bytes(file)
        limit = min(size, place + SEARCHED_BYTES)
        file.seek(place)
        before = b""  # the end of what was searched, so that nothing between two blocks is missed
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
