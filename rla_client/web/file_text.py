"""Pieces of a run's text files."""

from __future__ import annotations

import codecs
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.plain_files import written_bytes
from rla_client.web.item_files import asked_file
from rla_client.web.readable_text import readable
from rla_client.web.run_registry import Site

CHUNK_BYTES = 128 << 10  # of one piece


def text(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """A piece of a text: its end, or the part `before`, `after` or `around` an offset in bytes.

    Lines are complete unless they are longer than a piece. `restarted`: the file is shorter than `after`.
    """
    modes = {"before": CHUNK_BYTES, "after": 0, "around": CHUNK_BYTES // 2}  # bytes before the offset
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
    block = block.removesuffix(decoder.getstate()[0])  # without an incomplete character at its end
    end = start + len(block)
    return {"size": size, "start": start, "end": end, "text": readable(block), "restarted": restarted}
