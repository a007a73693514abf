"""Tags of a run as one text."""

from __future__ import annotations

import pytest

from rla_client.database.text.tag_text import tags_text


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        ((), ""),
        (("best",), "best"),
        (("best", "two"), "best two"),
        (("in a paper", "two"), "in a paper, two"),
    ],
)
def test_one_text(tags: tuple[str, ...], text: str) -> None:
    assert tags_text(tags) == text
