"""Collapsing of carriage returns in console output."""

from __future__ import annotations

import codecs
import re

MAX_COLUMNS = 1 << 16  # of an incomplete line
MOST_BARS = 50  # nested bars
_BACK = re.compile(r"\x1b\[A\r*\n")  # up and down again, as tqdm does between two states of a nested bar
_UNSEEN = re.compile(
    r"\x1b\[[0-?]{0,100}[ -/]{0,9}[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|\x1b[^\[\]]|[\x00\x07\b]"
)


class CollapsedLines:
    """Lines in their final state after progress bars have overwritten themselves; without escapes."""

    def __init__(self) -> None:
        self._decoder: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""

    def feed(self, data: bytes) -> str:
        """Take a piece of output; returns the lines that end in it."""
        text = self._rest + self._decoder.decode(data)
        for _ in range(MOST_BARS):
            text, again = _BACK.subn("\r", text)
            if not again:
                break
        *lines, rest = text.split("\n")
        rest = rest[rest.rstrip("\r").rfind("\r") + 1 :]  # returns at the end may belong to a newline
        while len(rest) > MAX_COLUMNS:
            lines.append(rest[:MAX_COLUMNS])
            rest = rest[MAX_COLUMNS:]
        self._rest = rest
        return "".join(f"{_collapsed(line)}\n" for line in lines)

    def end(self) -> str:
        """The last line, if it has no newline."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return f"{_collapsed(rest)}\n" if rest else ""


def _collapsed(line: str) -> str:
    line = line.rstrip("\r")
    return _UNSEEN.sub("", line[line.rfind("\r") + 1 :])
