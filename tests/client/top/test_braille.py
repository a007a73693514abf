from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rla_client.top.braille import draw


def text_of(frame: object) -> list[str]:
    return ["".join(mark for mark, _ in line) for line in frame.cells]  # type: ignore[attr-defined]


def test_a_rising_line_goes_from_corner_to_corner() -> None:
    frame = draw([[(0, 0), (1, 1)]], 4, 2)
    assert frame is not None
    assert text_of(frame) == ["  ⡠⠊", "⡠⠊  "]
    assert (frame.low, frame.high, frame.first, frame.last) == (0, 1, 0, 1)


def test_a_cell_belongs_to_the_later_curve() -> None:
    frame = draw([[(0, 0), (1, 1)], [(0, 1), (1, 0)]], 6, 3)
    assert frame is not None
    owners = {who for line in frame.cells for _, who in line}
    assert owners == {-1, 0, 1}
    assert frame.cells[0][0][1] == 1
    assert frame.cells[2][0][1] == 0


def test_equal_values_are_a_line_in_the_middle() -> None:
    frame = draw([[(0, 5), (1, 5)]], 3, 2)
    assert frame is not None
    assert text_of(frame) == ["⣀⣀⣀", "   "]


def test_nothing_finite_is_no_drawing() -> None:
    assert draw([[(0, math.nan)], [], [(math.inf, 1)]], 5, 5) is None


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20), max_size=4))
def test_any_numbers_fit_into_the_frame(curves: list[list[tuple[float, float]]]) -> None:
    frame = draw(curves, 7, 3)
    if frame is not None:
        assert [len(line) for line in frame.cells] == [7, 7, 7]
        assert any(who >= 0 for line in frame.cells for _, who in line)
