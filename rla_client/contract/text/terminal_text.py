"""Text within the columns of a terminal.

Wide (CJK) characters count as two columns, combining ones as none, and what cannot be printed (a newline in
a value) is shown escaped.
"""

from __future__ import annotations

import re
import unicodedata


def text_width(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def broken(text: str, width: int) -> list[str]:
    """Text in lines of `width` columns at most: broken at blanks, else after a slash, else anywhere."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        pieces = re.findall(r"/*[^/]+/*|/+", word) if text_width(word) > width else [word]
        for number, piece in enumerate(pieces):
            gap = " " if line and not number else ""
            if line and text_width(line + gap + piece) > width:
                lines.append(line)
                line = gap = ""
            for char in gap + piece:
                if line and text_width(line) + _char_width(char) > width:
                    lines.append(line)
                    line = ""
                line += char
    return [*lines, line]


def indented(text: str, width: int, first: str = "", others: str = "") -> str:
    """Text as `broken` lines, behind `first` and, below, `others` (of the same or another length)."""
    room = max(width - max(text_width(first), text_width(others)), 2)
    return "\n".join((others if number else first) + line for number, line in enumerate(broken(text, room)))


def fitted(text: str, width: int) -> str:
    """Lines as they are, the ones that are longer than `width` broken behind their own indent."""
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(line if text_width(line) <= width else indented(line, width, indent, indent))
    return "\n".join(lines)


def pad(text: str, width: int) -> str:
    """Fill `text` with blanks up to `width` columns."""
    return text + " " * (width - text_width(text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def printable(text: str) -> str:
    """Text for one line of a terminal or log: control characters, line ends, stray bytes are escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )
