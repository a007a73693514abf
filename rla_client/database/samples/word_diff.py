"""Word-wise difference of two texts. Pure."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

MAX_WORDS = 20_000  # of both texts together; the time may grow with the square
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
Kind: TypeAlias = Literal["same", "removed", "added"]


class DiffPiece(NamedTuple):
    """A piece of text that is in both texts or in one of them."""

    kind: Kind
    text: str


def word_diff(old: str, new: str) -> list[DiffPiece]:
    """Pieces of the difference; for very long texts only the common beginning and end are recognized."""
    first, second = _WORDS.findall(old), _WORDS.findall(new)
    begin = _common(first, second)
    first, second = first[begin:], second[begin:]
    end = _common(first[::-1], second[::-1])
    head = "".join(_WORDS.findall(new)[:begin])
    tail = "".join(second[len(second) - end :]) if end else ""
    first, second = first[: len(first) - end], second[: len(second) - end]
    found = [DiffPiece("same", head)]
    if len(first) + len(second) > MAX_WORDS:
        found += [DiffPiece("removed", "".join(first)), DiffPiece("added", "".join(second))]
    else:
        for kind, low, high, start, stop in SequenceMatcher(
            None, first, second, autojunk=False
        ).get_opcodes():
            if kind == "equal":
                found.append(DiffPiece("same", "".join(first[low:high])))
            else:
                found += [
                    DiffPiece("removed", "".join(first[low:high])),
                    DiffPiece("added", "".join(second[start:stop])),
                ]
    found.append(DiffPiece("same", tail))
    return [piece for piece in found if piece.text]


def diff_text(pieces: list[DiffPiece]) -> str:
    """A difference as one text: `[-removed-]{+added+}`."""
    marks = {"same": ("", ""), "removed": ("[-", "-]"), "added": ("{+", "+}")}
    return "".join(f"{marks[kind][0]}{text}{marks[kind][1]}" for kind, text in pieces)


def _common(first: list[str], second: list[str]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
