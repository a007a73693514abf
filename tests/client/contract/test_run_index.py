"""Index names."""

from __future__ import annotations

from datetime import datetime

import pytest

from rla_client.contract.run_index import MAX_INDEX_NAME_BYTES, RunIndex, make_info, shorten_info

OPENED = datetime(2026, 11, 21, 9, 30, 1, 123456)  # noqa: DTZ001


def test_an_index_is_named_and_read_back() -> None:
    index = RunIndex.make(OPENED, "10.0.0.5", "&lr=0.001")
    assert index.path == "2026/11/21/09-30-01-123456_10.0.0.5_&lr=0.001"
    assert RunIndex.parse(index.path) == index
    assert index.opened == OPENED
    assert index.record_date == "2026/11/21/09-30-01-123456"


def test_old_databases_separate_by_spaces() -> None:
    index = RunIndex.parse("2021/01/02/03-04-05-000006 10.0.0.5 &a=b c_d")
    assert index is not None
    assert (index.ip, index.info, index.separator) == ("10.0.0.5", "&a=b c_d", " ")
    assert RunIndex.parse("2021/01/02/readme.txt") is None
    assert RunIndex.parse("x/09-30-01-123456_noip_&") is None


@pytest.mark.parametrize(
    ("tracked", "info"),
    [
        ([], "&"),
        ([("a", 1), ("b.c", "x")], "&a=1&b.c=x"),
        ([("a", 1), ("a", 1)], "&a=1&a=1"),
        ([("net", [64, 64]), ("path", "a/b")], "&net={64, 64}&path=a_b"),
        ([("text", "a\nb\0c")], "&text=a_b_c"),
        ([("bad", "\udc80")], "&bad=\\udc80"),
    ],
)
def test_info_of_tracked_parameters(tracked: list[tuple[str, object]], info: str) -> None:
    assert make_info(tracked) == info


def test_a_long_info_is_shortened_with_a_hash_and_stays_unique() -> None:
    first = RunIndex.make(OPENED, "10.0.0.5", "&" + "é" * 300 + "1")
    second = RunIndex.make(OPENED, "10.0.0.5", "&" + "é" * 300 + "2")
    assert len(first.name.encode()) <= MAX_INDEX_NAME_BYTES
    assert first.name != second.name
    assert shorten_info("&short", 100) == "&short"
