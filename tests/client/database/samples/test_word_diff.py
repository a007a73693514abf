from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rla_client.database.samples.word_diff import MAX_WORDS, DiffPiece, diff_text, word_diff


def test_a_changed_word_is_shown_between_what_stayed() -> None:
    assert word_diff("the cat sat", "the dog sat") == [
        DiffPiece("same", "the "),
        DiffPiece("removed", "cat"),
        DiffPiece("added", "dog"),
        DiffPiece("same", " sat"),
    ]
    assert diff_text(word_diff("a b", "a c")) == "a [-b-]{+c+}"
    assert word_diff("same", "same") == [DiffPiece("same", "same")]


@given(st.text("ab \n.", max_size=30), st.text("ab \n.", max_size=30))
def test_both_texts_can_be_read_from_it(old: str, new: str) -> None:
    pieces = word_diff(old, new)
    assert "".join(text for kind, text in pieces if kind != "added") == old
    assert "".join(text for kind, text in pieces if kind != "removed") == new


def test_very_long_texts_are_not_compared_for_minutes() -> None:
    old, new = "begin " + "a b " * MAX_WORDS + "end", "begin " + "c " * MAX_WORDS + "end"
    assert [kind for kind, _ in word_diff(old, new)] == ["same", "removed", "added", "same"]
