"""Terminal escapes and controls in texts."""

from __future__ import annotations

import time

import pytest
from support.waiting import TIME_FACTOR

from rla_client.web.file_text import CHUNK_BYTES
from rla_client.web.readable_text import readable


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b" 1%\r 50%\r100%\nnext", "100%\nnext"),
        (b"windows\r\nends\r\n", "windows\nends\n"),
        (b"\xff\xfe bad \x00 \x07", "\ufffd\ufffd bad \ufffd \ufffd"),
        ("right\u202eleft".encode(), "right\ufffdleft"),
        (b"tab\tstays", "tab\tstays"),
        (b"\x1b", "\ufffd"),
    ],
)
def test_texts_are_readable(data: bytes, expected: str) -> None:
    assert readable(data) == expected


def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    begun = time.monotonic()
    for data in (
        b"\x1b[" * (CHUNK_BYTES // 2),
        b"\x1b]" * (CHUNK_BYTES // 2),
        b"\r" * CHUNK_BYTES,
        b"\x1b[0" + b"0" * CHUNK_BYTES,
    ):
        readable(data)
    assert time.monotonic() - begun < 2 * TIME_FACTOR
