"""What is left of output that writes over itself."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.run.console.carriage_returns import MAX_COLUMNS, CollapsedLines

BARS = "".join(f"\r{done:3}%|{'#' * (done // 10):10}|" for done in range(0, 101, 10)) + "\n"
NESTED = (
    "".join(
        f"\router {outer}\x1b[0m" + "".join(f"\n\rinner {inner}\x1b[A" for inner in range(50))
        for outer in range(3)
    )
    + "\n\n"
)
DEEP = "\router" + "".join(f"\n\n\rinner {inner}\x1b[A\x1b[A" for inner in range(50)) + "\n\n\nend\n"
COLLAPSED = [
    ("plain\nlines\n", "plain\nlines\n"),
    ("no newline at the end", "no newline at the end\n"),
    ("", ""),
    ("\n\n", "\n\n"),
    ("dos\r\nlines\r\n", "dos\nlines\n"),
    (BARS, "100%|##########|\n"),
    ("10%\r20%\r", "20%\n"),
    ("longer text\r\x1b[Kshort\n", "short\n"),
    ("bar\r   \rtext\n", "text\n"),
    ("a\x00b\x07c\n", "abc\n"),
    ("\x1b[31mred\x1b[0m \x1b[1;32mgreen\x1b[m\n", "red green\n"),
    ("\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\n", "textlink\n"),
    (NESTED, "outer 0\nouter 1\nouter 2\ninner 49\n"),
    (DEEP, "outer\n\ninner 49\nend\n"),
]


def collapsed(pieces: list[bytes]) -> str:
    lines = CollapsedLines()
    return "".join([lines.feed(piece) for piece in pieces]) + lines.end()


@pytest.mark.parametrize(("text", "expected"), COLLAPSED)
def test_what_is_left(text: str, expected: str) -> None:
    assert collapsed([text.encode()]) == expected
    assert collapsed([bytes([byte]) for byte in text.encode()]) == expected, "it may come in any pieces"


@given(
    st.text(alphabet="ab\n\r\x1b[]0;1AKm\x07é").map(str.encode) | st.binary(),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_pieces_change_nothing(data: bytes, cuts: list[int]) -> None:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    assert collapsed([data[low:high] for low, high in pairwise(at)]) == collapsed([data])


def test_a_bar_is_not_held_back_without_bound() -> None:
    lines = CollapsedLines()
    assert lines.feed(b"\rbar" * MAX_COLUMNS) == ""
    assert len(lines.feed(b"x" * 3 * MAX_COLUMNS)) > 2 * MAX_COLUMNS
    assert len(lines.end()) <= MAX_COLUMNS + 1
