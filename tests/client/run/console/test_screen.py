"""What is left standing of output that writes over itself."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.run.console.screen import MAX_COLUMNS, QUIET_S, UP_S, WINDOW, Screen

BARS = "".join(f"\r{done:3}%|{'#' * (done // 10):10}|" for done in range(0, 101, 10)) + "\n"
NESTED = "".join(f"\router {done}\n\rinner {done}\x1b[A" for done in range(50)) + "\n\n"
SHOWN = [
    ("plain\nlines\n", "plain\nlines\n"),
    ("no newline at the end", "no newline at the end\n"),
    ("", ""),
    ("\n\n", "\n\n"),
    ("dos\r\nlines\r\n", "dos\nlines\n"),
    (BARS, "100%|##########|\n"),
    ("longer text\rshort\n", "shortr text\n"),
    ("longer text\r\x1b[Kshort\n", "short\n"),
    ("longer text\x1b[2K\rshort\n", "short\n"),
    ("ab\b\bX\n", "Xb\n"),
    ("a\x00b\x07c\n", "abc\n"),
    ("\x1b[31mred\x1b[0m \x1b[1;32mgreen\x1b[m\n", "red green\n"),
    ("\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\n", "textlink\n"),
    ("ab\x1b[3Gd\x1b[5Cx\n", "abd     x\n"),
    (NESTED, "outer 49\ninner 49\n"),
    ("one\ntwo\x1b[1A\x1b[J\rnew\n", "new\n"),
    ("\x1b[999999999999999Aup\x1b[999999Cfar\x1b[?25l\n", "up" + " " * WINDOW + "far\n"),
]


def shown(pieces: list[str]) -> str:
    screen = Screen()
    return "".join(screen.feed(piece, 0.0) for piece in pieces) + screen.end()


@pytest.mark.parametrize(("text", "expected"), SHOWN)
def test_what_is_left_standing(text: str, expected: str) -> None:
    assert shown([text]) == expected
    assert shown(list(text)) == expected, "it may come in any pieces"


@given(st.text(alphabet="ab\n\r\b\x1b[]0;1AKJmG\x07é"), st.lists(st.integers(0, 200), max_size=6))
def test_pieces_change_nothing(text: str, cuts: list[int]) -> None:
    at = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    assert shown([text[low:high] for low, high in pairwise(at)]) == shown([text] if text else [])


def test_whole_lines_are_given_once_they_stand_still() -> None:
    screen = Screen()
    assert screen.feed("one\ntwo", 10.0) == ""
    assert screen.settled(10.0 + 2 * QUIET_S) == "one\n"
    assert screen.feed("\nthree\x1b[A", 11.0) == ""
    assert screen.settled(11.0 + 2 * QUIET_S) == "", "a bar that moves up"
    assert screen.feed("\n", 11.5) == ""
    assert screen.settled(11.5 + UP_S) == "two\n"
    assert screen.end() == "three\n"


def test_nothing_is_held_back_without_bound() -> None:
    screen = Screen()
    lines = "".join(f"{number}\n" for number in range(10 * WINDOW))
    assert screen.feed(lines, 0.0).count("\n") == 9 * WINDOW
    assert screen.feed("x" * 3 * MAX_COLUMNS, 0.0) + screen.end()
